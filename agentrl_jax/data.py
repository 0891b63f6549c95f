"""How do demonstrations become batches for supervised fine-tuning?

Conversations are tokenised once, packed whole into rows of one length, and
served by a grain pipeline whose batch `i` depends on (rows, seed, i) alone: a
resumed run asks for the batches it has not seen.
"""

import functools
import hashlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl_jax import packing, types
from agentrl_jax.text import chat, conversations, templates
from agentrl_jax.text import memory as memory_lib
from agentrl_jax.text.tokenizer import Tokenizer

Rows = dict[str, np.ndarray]


class Conversations:
  """Demonstrations of somebody else: a file of chat JSON lines.

  Args:
    path: of the file, as `text.conversations` describes it.

  Attributes:
    directory: the file's path with a digest of its content as name, which is
      what tells generated demonstrations apart as well.

  Raises:
    ValueError: a file that cannot be read; says which line is at fault.
  """

  def __init__(self, path: str):
    self._records = conversations.read(path)
    digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    self.directory = pathlib.Path(path).parent / digest[:16]

  def __len__(self) -> int:
    return len(self._records)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self._records[index]


def sft_rows(
  records: Iterable[Mapping[str, Any]],
  tokenizer: Tokenizer,
  style: str | chat.Style,
  *,
  row_length: int,
  tools: Sequence[Mapping[str, Any]] = (),
  observation_weight: float = 0.1,
  memory: memory_lib.Memory | None = None,
) -> Rows:
  """Tokenises conversations and packs them; no context is cut.

  Args:
    records: each with `messages`, {role, content} mappings or records, calls
      in the notation of 'tiny' or of the style; and `tools`, where they are
      others than those of all. `contexts` of the same `tokenizer` are taken as
      they are.
    tokenizer: knows the special tokens of the style.
    style: a name in `STYLES` or a style.
    row_length: T, tokens of a row.
    tools: JSON schemas of all, shown if the style shows them.
    observation_weight: loss weight of tokens that the agent did not write.
    memory: what of the past a turn sees; None = all, in one context. Others
      make the contexts that a rollout makes: each turn once as what is
      written, elsewhere as history.

  Returns:
    Arrays [R, T], aligned with the token itself as in `TokenBatch`: `tokens`
    int32, 0 where padded; `positions` int32 within the segment; `segment_ids`
    int32, 1.. within the row, 0 where padded; `mask` bool, True on what the
    assistant wrote there; `weights` float32, not normalised: 1 where `mask`,
    `observation_weight` on the rest, 0 on padding and on the first token of a
    segment, which nothing predicts.

  Raises:
    ValueError: no records; a context longer than a row.
  """
  memory = memory or memory_lib.Memory()
  owners, contexts = [], []
  name = functools.cache(lambda: conversations.name(tokenizer))
  for i, record in enumerate(records):
    if record.get('contexts') and record['tokenizer'] == name():
      parts = record['contexts']
    else:
      messages = templates.translated(style, record['messages'])
      own = record.get('tools', tools)
      parts = memory_lib.contexts(tokenizer, style, messages, memory, own)
    owners += [i] * len(parts)
    contexts += parts
  if not contexts:
    raise ValueError('no demonstrations: config.sft.demonstrations must be > 0')
  lengths = [len(tokens.ids) for tokens in contexts]
  longest = int(np.argmax(lengths))
  if lengths[longest] > row_length:
    raise ValueError(
      f'demonstration {owners[longest]} has {lengths[longest]} tokens and is '
      f'never cut: raise row_length={row_length} (config.train.row_length, '
      'which follows config.rollout.max_context)'
    )
  return pack(
    contexts, row_length=row_length, observation_weight=observation_weight
  )


def pack(
  contexts: Sequence[types.Tokens],
  *,
  row_length: int,
  observation_weight: float,
) -> Rows:
  """Packs token streams whole into rows.

  Args:
    contexts: what was seen and, where `sampled_mask`, written.
    row_length: T, at least the longest of them.
    observation_weight: loss weight of what was seen.

  Returns:
    As `sft_rows`.
  """
  lengths = [len(tokens.ids) for tokens in contexts]
  members = packing.pack(lengths, row_length)
  shape = (len(members), row_length)
  rows = {
    'tokens': np.zeros(shape, np.int32),
    'positions': np.zeros(shape, np.int32),
    'segment_ids': np.zeros(shape, np.int32),
    'mask': np.zeros(shape, bool),
    'weights': np.zeros(shape, np.float32),
  }
  for r, indices in enumerate(members):
    start = 0
    for segment, index in enumerate(indices, start=1):
      end = start + lengths[index]
      mask = np.array(contexts[index].sampled_mask, bool)
      rows['tokens'][r, start:end] = contexts[index].ids
      rows['positions'][r, start:end] = np.arange(lengths[index])
      rows['segment_ids'][r, start:end] = segment
      rows['mask'][r, start:end] = mask
      rows['weights'][r, start:end] = np.where(mask, 1.0, observation_weight)
      rows['weights'][r, start] = 0.0
      start = end
  return rows


def sft_batches(rows: Rows, *, num_rows: int, seed: int):
  """Returns the endless sequence of batches, each epoch shuffled anew.

  Args:
    rows: as `sft_rows` gives them.
    num_rows: rows of a batch; one batch may straddle two epochs.
    seed: of the order.

  Returns:
    A `grain.MapDataset`: `batches[i]` is a dictionary of arrays
    [num_rows, T] and depends on nothing but (rows, seed, i).

  Raises:
    ValueError: no rows.
  """
  import grain  # loads jax and orbax, half a second

  if not len(rows['tokens']):
    raise ValueError('no rows: give sft_rows at least one demonstration')
  dataset = grain.MapDataset.source(_RowSource(rows)).seed(seed)
  return dataset.shuffle().repeat().batch(num_rows, drop_remainder=True)


def iterate(batches) -> Iterator[Rows]:
  """Returns an iterator over batches with `get_state` and `set_state`.

  The state is a small JSON-like value; an iterator that is given it continues
  with the batch that would have come next.

  Args:
    batches: as `sft_batches` gives them.
  """
  import grain

  options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
  return iter(batches.to_iter_dataset(options))


class _RowSource:
  """Random access to packed rows (grain's source protocol)."""

  def __init__(self, rows: Rows):
    self._rows = rows

  def __len__(self) -> int:
    return len(self._rows['tokens'])

  def __getitem__(self, index: int) -> Rows:
    return {name: values[index] for name, values in self._rows.items()}

  def __repr__(self) -> str:
    return f'_RowSource({len(self)} rows)'
