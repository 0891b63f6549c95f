"""How does text become ids and back, exactly, and how is a tokenizer stored?

Text of the world is untrusted: `encode` never makes a special token out of it
unless it is told which ones the text may hold.
"""

import json
import pathlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import tokenizers

from agentrl_jax.text import bpe, chat, jinja

_CHARACTERS = bpe.byte_characters()
_BYTES = {character: byte for byte, character in enumerate(_CHARACTERS)}
_MEMO_SIZE, _MEMO_LENGTH = 1 << 16, 64  # entries, characters of an entry


class Tokenizer:
  """A Hugging Face `tokenizer.json` with trust made explicit.

  Args:
    spec: contents of `tokenizer.json`.
    config: contents of `tokenizer_config.json`: end and padding token, chat
      template and, for our own tokenizers, the chat style.

  Attributes:
    vocab_size: largest id + 1.
    special_ids: added token -> id (controls and tags).
    end_id: ends a turn, None if the files name none.
    pad_id: fills rows, None if the files name none.
    style: name of the chat style it was trained for, '' if unknown.
    chat_template: jinja text, '' if there is none.
  """

  def __init__(self, spec: Mapping, config: Mapping):
    self._spec, self._config = dict(spec), dict(config)
    added = sorted(spec['added_tokens'], key=lambda token: token['id'])
    self.special_ids = {token['content']: token['id'] for token in added}
    self._controls = {token['id'] for token in added if token['special']}
    self._plain = _without_specials(spec, self.special_ids)
    self._table = _byte_table(spec, self.special_ids)
    self._names = {id_: name for name, id_ in self.special_ids.items()}
    vocab = self._plain.get_vocab().values()
    self.vocab_size = max([*vocab, *self.special_ids.values()]) + 1
    self.end_id = self._named('eos_token')
    self.pad_id = self._named('pad_token')
    self.style = config.get('agentrl_style', '')
    self.chat_template = config.get('chat_template') or ''
    self._find_chunks = None
    if _is_ours(spec):
      self._find_chunks = re.compile(bpe.PATTERN).findall
    self._memo: dict[str, list[int]] = {}
    self._patterns: dict[tuple[str, ...], re.Pattern] = {}

  def encode(
    self, text: str, specials: bool | Collection[str] = False
  ) -> list[int]:
    """Returns the ids of text; nothing is added around them.

    Args:
      text: any string; a lone surrogate becomes '?'.
      specials: which special tokens the text is trusted to hold: none, all
        (as Hugging Face tokenizers read it) or those named.
    """
    if not specials:
      return self._encode_plain(text)
    ids = []
    for piece in self.split(text, None if specials is True else specials):
      if isinstance(piece, int):
        ids.append(piece)
      else:
        ids += self._encode_plain(piece)
    return ids

  def decode(self, ids: Sequence[int], *, controls: bool = True) -> str:
    """Returns the text of ids; `controls=False` leaves control tokens out.

    Bytes that are no UTF-8 become U+FFFD, ids beyond the vocabulary nothing.
    """
    if not controls:
      ids = [id_ for id_ in ids if id_ not in self._controls]
    table = self._table
    if table is None:
      return self._decode_foreign(ids)
    try:
      data = b''.join([table[id_] for id_ in ids])
    except KeyError:
      data = b''.join([table.get(id_, b'') for id_ in ids])
    return data.decode('utf-8', 'replace')

  def split(
    self, text: str, names: Iterable[str] | None = None
  ) -> list[int | str]:
    """Cuts text at special tokens: ids where they stand, strings between.

    Args:
      text: trusted to hold the special tokens `names` (None = all).
      names: those unknown to this tokenizer are ordinary text.
    """
    key = tuple(self.special_ids) if names is None else tuple(names)
    pattern = self._patterns.get(key)
    if pattern is None:
      known = [name for name in key if name in self.special_ids]
      known.sort(key=len, reverse=True)
      alternatives = '|'.join(map(re.escape, known)) or '(?!)'
      pattern = re.compile(f'({alternatives})')
      self._patterns[key] = pattern
    parts = pattern.split(text)
    pieces: list[int | str] = list(parts)
    pieces[1::2] = [self.special_ids[name] for name in parts[1::2]]
    return [piece for piece in pieces if piece != '']

  def save(self, directory: str | pathlib.Path) -> None:
    """Writes the files that `transformers.AutoTokenizer` loads."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in self.files().items():
      (directory / name).write_text(text, encoding='utf-8')

  def files(self) -> dict[str, str]:
    """Returns name -> contents of the saved files: the whole identity."""
    named = {
      key: self._config[key]
      for key in ('bos_token', 'eos_token', 'pad_token', 'unk_token')
      if self._config.get(key)
    }
    files = {
      'tokenizer.json': _dump(self._spec),
      'tokenizer_config.json': _dump(self._config),
      'special_tokens_map.json': _dump(named),
    }
    if self.chat_template:
      files['chat_template.jinja'] = self.chat_template
    return files

  def _named(self, key: str) -> int | None:
    token = self._config.get(key)
    if isinstance(token, Mapping):
      token = token.get('content')
    return self.special_ids.get(token)

  def _encode_plain(self, text: str) -> list[int]:
    if self._find_chunks is None:
      text = text.encode('utf-8', 'replace').decode('utf-8')
      return self._plain.encode(text, add_special_tokens=False).ids
    ids: list[int] = []
    memo = self._memo
    for chunk in self._find_chunks(text):
      known = memo.get(chunk)
      ids += self._encode_chunk(chunk) if known is None else known
    return ids

  def _encode_chunk(self, chunk: str) -> list[int]:
    data = chunk.encode('utf-8', 'replace')
    symbols = ''.join([_CHARACTERS[byte] for byte in data])
    ids = [token.id for token in self._plain.model.tokenize(symbols)]
    if len(chunk) <= _MEMO_LENGTH:
      if len(self._memo) >= _MEMO_SIZE:
        self._memo.clear()
      self._memo[chunk] = ids
    return ids

  def _decode_foreign(self, ids: Sequence[int]) -> str:
    text, run = [], []
    for id_ in [*ids, None]:
      if id_ is None or id_ in self._names:
        text.append(self._plain.decode(run, skip_special_tokens=False))
        text.append(self._names.get(id_, ''))
        run = []
      else:
        run.append(id_)
    return ''.join(text)


def train(
  texts: Iterable[str], *, vocab_size: int, style: str | chat.Style = 'tiny'
) -> Tokenizer:
  """Learns a byte-level tokenizer: any text round-trips exactly.

  Args:
    texts: trusted text as the policy will see it; special tokens inside it are
      cut out. The order does not matter: same texts, same files.
    vocab_size: upper bound, special tokens and the 256 bytes included; slots
      that would save next to nothing stay unused.
    style: name of a chat style, whose special tokens get the first ids.

  Raises:
    ValueError: `vocab_size` does not hold the bytes and special tokens.
  """
  style = chat.style(style)
  budget = vocab_size - 256 - len(style.specials)
  if budget < 0:
    raise ValueError(
      f'vocab_size={vocab_size}: 256 bytes and {len(style.specials)} special '
      f'tokens need at least {256 + len(style.specials)}'
    )
  learned, merges = bpe.learn(_count_chunks(texts, style), budget=budget)
  names = [*style.specials, *_CHARACTERS, *learned]
  spec = {
    'version': '1.0',
    'truncation': None,
    'padding': None,
    'added_tokens': [
      _added(i, name, name in style.controls)
      for i, name in enumerate(style.specials)
    ],
    'normalizer': None,
    'pre_tokenizer': _pre_tokenizer(),
    'post_processor': None,
    'decoder': _byte_level(),
    'model': {
      'type': 'BPE',
      'dropout': None,
      'unk_token': None,
      'continuing_subword_prefix': None,
      'end_of_word_suffix': None,
      'fuse_unk': False,
      'byte_fallback': False,
      'ignore_merges': True,
      'vocab': {name: i for i, name in enumerate(names)},
      'merges': [list(pair) for pair in merges],
    },
  }
  config = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'clean_up_tokenization_spaces': False,
    'model_max_length': 10**9,
    'eos_token': style.end,
    'pad_token': style.controls[0],
    'chat_template': jinja.TEMPLATES.get(style.name, ''),
    'agentrl_style': style.name,
  }
  return Tokenizer(spec, config)


def load(directory: str | pathlib.Path) -> Tokenizer:
  """Reads a tokenizer in Hugging Face format.

  Raises:
    ValueError: no `tokenizer.json` there.
  """
  directory = pathlib.Path(directory)
  if not (directory / 'tokenizer.json').is_file():
    raise ValueError(
      f'{directory}: no tokenizer.json; give a directory that Tokenizer.save '
      'or a Hugging Face fast tokenizer has written'
    )
  spec = json.loads((directory / 'tokenizer.json').read_text('utf-8'))
  path = directory / 'tokenizer_config.json'
  config = json.loads(path.read_text('utf-8')) if path.is_file() else {}
  path = directory / 'chat_template.jinja'
  if path.is_file():
    config['chat_template'] = path.read_text('utf-8')
  return Tokenizer(spec, config)


def _count_chunks(texts: Iterable[str], style: chat.Style) -> Counter:
  cut = re.compile('|'.join(map(re.escape, style.specials)))
  find_chunks = re.compile(bpe.PATTERN).findall
  chunks: Counter = Counter()
  for text in texts:
    for part in cut.split(text):
      chunks.update(find_chunks(part))
  symbols: Counter = Counter()
  for chunk, count in chunks.items():
    data = chunk.encode('utf-8', 'replace')
    symbols[''.join([_CHARACTERS[byte] for byte in data])] += count
  return symbols


def _added(id_: int, name: str, special: bool) -> dict:
  return {
    'id': id_,
    'content': name,
    'single_word': False,
    'lstrip': False,
    'rstrip': False,
    'normalized': False,
    'special': special,
  }


def _byte_level() -> dict:
  return {
    'type': 'ByteLevel',
    'add_prefix_space': False,
    'trim_offsets': False,
    'use_regex': False,
  }


def _pre_tokenizer() -> dict:
  cut = {
    'type': 'Split',
    'pattern': {'Regex': bpe.PATTERN},
    'behavior': 'Isolated',
    'invert': False,
  }
  return {'type': 'Sequence', 'pretokenizers': [cut, _byte_level()]}


def _is_ours(spec: Mapping) -> bool:
  """True if the fast path of `encode` computes what the spec says."""
  return (
    spec['pre_tokenizer'] == _pre_tokenizer() and spec['normalizer'] is None
  )


def _without_specials(
  spec: Mapping, special_ids: Mapping[str, int]
) -> tokenizers.Tokenizer:
  """The same tokenizer, for which special tokens do not exist."""
  model = dict(spec['model'])
  if model['type'] == 'BPE':
    model['vocab'] = {
      name: id_
      for name, id_ in model['vocab'].items()
      if name not in special_ids
    }
  plain = {**spec, 'added_tokens': [], 'post_processor': None, 'model': model}
  return tokenizers.Tokenizer.from_str(json.dumps(plain))


def _byte_table(
  spec: Mapping, special_ids: Mapping[str, int]
) -> dict[int, bytes] | None:
  """Id -> bytes for a byte-level tokenizer, None for any other."""
  if (spec['decoder'] or {}).get('type') != 'ByteLevel':
    return None
  table = {
    id_: bytes([_BYTES[character] for character in name])
    for name, id_ in spec['model']['vocab'].items()
    if name not in special_ids
  }
  for name, id_ in special_ids.items():
    table[id_] = name.encode('utf-8')
  return table


def _dump(value: Mapping) -> str:
  return json.dumps(value, ensure_ascii=False, indent=1) + '\n'
