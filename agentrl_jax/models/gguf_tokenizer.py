"""Which tokenizer does a GGUF file hold? A byte-level BPE, by its metadata.

The result is what a Hugging Face `tokenizer.json` and `tokenizer_config.json`
would say, as data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_CONTROL, _USER_DEFINED = 3, 4  # of tokenizer.ggml.token_type

# How text is cut before merges apply, by the patterns that the models'
# publishers state; `{}` is how many digits stay together.
_WORDS = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}|"
  r' ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)


def _byte_level(use_regex: bool) -> dict[str, Any]:
  return {
    'type': 'ByteLevel',
    'add_prefix_space': False,
    'trim_offsets': False,
    'use_regex': use_regex,
  }


def _sequence(first: dict[str, Any], use_regex: bool) -> dict[str, Any]:
  parts = [first, _byte_level(use_regex)]
  return {'type': 'Sequence', 'pretokenizers': parts}


def _split(pattern: str) -> dict[str, Any]:
  cut = {
    'type': 'Split',
    'pattern': {'Regex': pattern},
    'behavior': 'Isolated',
    'invert': False,
  }
  return _sequence(cut, False)


# tokenizer.ggml.pre -> pre_tokenizer, normalizer, whether a piece that is a
# token is taken whole.
PRE_TOKENIZERS = {
  'gpt-2': (_byte_level(True), None, False),
  'smollm': (
    _sequence({'type': 'Digits', 'individual_digits': True}, True),
    None,
    False,
  ),
  'qwen2': (_split(_WORDS.format('')), {'type': 'NFC'}, False),
  'llama-bpe': (_split(_WORDS.format('{1,3}')), None, True),
}


class TokenizerSpec(NamedTuple):
  """Contents of `tokenizer.json` and of `tokenizer_config.json`."""

  spec: dict[str, Any]
  config: dict[str, Any]


def read(metadata: Mapping[str, Any], *, at: Any = 'GGUF') -> TokenizerSpec:
  """Reads the tokenizer from metadata.

  Args:
    metadata: name -> value, as in the file.
    at: named in errors.

  Raises:
    ValueError: another kind of tokenizer, or parts of it are missing.
  """
  said = {
    key.removeprefix('tokenizer.').removeprefix('ggml.'): value
    for key, value in metadata.items()
    if key.startswith('tokenizer.')
  }
  kind, cut = said.get('model'), said.get('pre')
  if kind != 'gpt2' or cut not in PRE_TOKENIZERS:
    raise ValueError(
      f'{at}: tokenizer.ggml.model={kind!r}, pre={cut!r}: only byte-level BPE '
      f"('gpt2') with one of {sorted(PRE_TOKENIZERS)} is supported"
    )
  tokens, types = said['tokens'], said.get('token_type')
  if 'merges' not in said or not types or len(types) != len(tokens):
    raise ValueError(
      f'{at}: tokenizer.ggml.merges or token_type is missing or too short'
    )
  pre_tokenizer, normalizer, whole = PRE_TOKENIZERS[cut]
  spec = {
    'version': '1.0',
    'truncation': None,
    'padding': None,
    'added_tokens': _added(tokens, types),
    'normalizer': normalizer,
    'pre_tokenizer': pre_tokenizer,
    'post_processor': None,
    'decoder': _byte_level(True),
    'model': {
      'type': 'BPE',
      'dropout': None,
      'unk_token': None,
      'continuing_subword_prefix': None,
      'end_of_word_suffix': None,
      'fuse_unk': False,
      'byte_fallback': False,
      'ignore_merges': whole,
      'vocab': {token: i for i, token in enumerate(tokens)},
      'merges': [merge.split(' ') for merge in said['merges']],
    },
  }
  return TokenizerSpec(spec, _config(said, tokens))


def _added(tokens: Sequence[str], types: Sequence[int]) -> list[dict]:
  return [
    {
      'id': i,
      'content': token,
      'single_word': False,
      'lstrip': False,
      'rstrip': False,
      'normalized': False,
      'special': kind == _CONTROL,
    }
    for i, (token, kind) in enumerate(zip(tokens, types))
    if kind in (_CONTROL, _USER_DEFINED)
  ]


def _config(said: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
  named = {
    f'{name}_token': tokens[said[f'{key}_token_id']]
    for name, key in (
      ('bos', 'bos'),
      ('eos', 'eos'),
      ('pad', 'padding'),
      ('unk', 'unknown'),
    )
    if f'{key}_token_id' in said
  }
  return {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'clean_up_tokenization_spaces': False,
    'model_max_length': 10**9,
    **named,
    'chat_template': said.get('chat_template', ''),
  }
