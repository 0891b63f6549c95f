"""What is a step worth, in the eyes of a learned head?

A small decoder reads an episode as `rewards.steps` writes it, and says at the
end of each step how likely it is that the label is "good". A process head
(PRM) learns the labels of all steps, an outcome head (ORM) that of the last.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from agentrl_jax import checkpoint, losses, packing, rng, sharding, types
from agentrl_jax.batch import TokenBatch
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models import heads
from agentrl_jax.models import params as params_lib
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.rewards import steps as steps_lib
from agentrl_jax.rollout import collate
from agentrl_jax.text import tokenizer as tokenizer_lib

KINDS = ('process', 'outcome')
ROWS = 4  # of a microbatch
SHAPE = dict(
  num_layers=2,
  d_model=64,
  num_heads=2,
  num_kv_heads=2,
  head_dim=32,
  d_ff=128,
  tie_embeddings=True,
  embedding_std=0.5,
  rope_theta=1e4,
  scan_unroll=2,
)


@dataclasses.dataclass(frozen=True)
class Head:
  """A trained head, and how it reads.

  Attributes:
    kind: one of `KINDS`.
    config: shape of the decoder, with a value head.
    params: its weights.
    tokenizer: of its texts.
    row_length: tokens of an episode that it reads.
  """

  kind: str
  config: ModelConfig
  params: Any
  tokenizer: tokenizer_lib.Tokenizer
  row_length: int


@dataclasses.dataclass(frozen=True)
class Rows:
  """Episodes as packed rows, the last ones empty.

  Attributes:
    batch: host arrays [R, T]; `weights` is 1 where a label counts.
    labels: [R, T] float32, 0 where there is none.
    places: of each episode the (row, column) of each step's end, as far as it
      was read.
  """

  batch: TokenBatch
  labels: np.ndarray
  places: list[list[tuple[int, int]]]


def train(
  records: Sequence[steps_lib.Steps],
  *,
  kind: str = 'process',
  updates: int = 200,
  batch_rows: int = 16,
  learning_rate: float = 3e-3,
  row_length: int = 512,
  vocab_size: int = 512,
  seed: int = 0,
) -> Head:
  """Fits a head to labels by their mean cross-entropy.

      L = -mean_t [y_t log σ(z_t) + (1 - y_t) log(1 - σ(z_t))]

  Args:
    records: episodes with a label a step, 0 to 1.
    kind: 'process' = all labels count, 'outcome' = the last of each episode.
    updates: of the optimizer, Adam with a cosine.
    batch_rows: rows of an update, a multiple of `ROWS`.
    learning_rate: peak.
    row_length: T; what of an episode lies beyond is not read.
    vocab_size: of the tokenizer, which is trained on the same records.
    seed: of weights and order.

  Raises:
    ValueError: no records, unknown kind, labels outside 0 to 1.

  Reference: Lightman et al. 2023, arXiv:2305.20050; Wang et al. 2024,
  arXiv:2312.08935, for labels by roll-outs. There the head is a language
  model's; here it is a decoder of its own.
  """
  _check(records, kind)
  texts = [text for each in records for text in (each.prompt, *each.steps)]
  tokenizer = tokenizer_lib.train(texts, vocab_size=vocab_size)
  config = _shape(tokenizer.vocab_size)
  options = dict(
    name='adam', learning_rate=learning_rate, warmup=10, schedule='cosine',
    b1=0.9, b2=0.99, epsilon=1e-8, weight_decay=0.0, clip_norm=1.0,
  )  # fmt: skip
  tx = optimizer.make(options, updates)
  learner = step.Learner(config, _objective, tx, _mesh(), ROWS)
  state = learner.create(params_lib.init(config, rng.stream(seed, 'init')))
  rows = _rows(tokenizer, records, row_length, kind)
  draw, order = rng.generator(seed, 'order'), []
  for _ in range(updates):
    while len(order) < batch_rows:
      order += draw.permutation(len(rows.labels)).tolist()
    chosen, order = np.array(order[:batch_rows]), order[batch_rows:]
    batch = jax.tree.map(lambda x, at=chosen: x[at], rows.batch)
    total = max(float(batch.weights.sum()), 1.0)
    batch = batch.replace(weights=batch.weights / np.float32(total))
    labels = collate.microbatches(rows.labels[chosen], ROWS)
    parts = collate.microbatches(batch, ROWS)
    state, _, _ = learner.update(state, parts, [{'labels': x} for x in labels])
  params = jax.device_get(state.params)
  return Head(kind, config, params, tokenizer, row_length)


class Scorer:
  """Calls a head: trajectories -> a number each, or one a turn each."""

  def __init__(self, head: Head):
    self.head = head
    self._mesh = _mesh()

    def read(params, batch):
      hidden = objective.hidden_states(head.config, params, batch)
      return jax.nn.sigmoid(heads.values(params, hidden))

    self._read = jax.jit(read)
    self._params = jax.device_put(head.params, sharding.replicated(self._mesh))

  def __call__(
    self, trajectories: Sequence[types.Trajectory]
  ) -> list[float] | list[list[float]]:
    """Scores finished trajectories, 0 to 1.

    Returns:
      Of a process head [S] each, of an outcome head the last of them.
    """
    found = self.steps(
      [steps_lib.of_trajectory(t, [0.0] * len(t.turns)) for t in trajectories]
    )
    if self.head.kind == 'process':
      return found
    return [row[-1] if row else 0.0 for row in found]

  def steps(self, records: Sequence[steps_lib.Steps]) -> list[list[float]]:
    """Scores each step of each record; labels are not looked at.

    A step beyond the row has the score of the last one that was read.
    """
    head = self.head
    rows = _rows(head.tokenizer, records, head.row_length, head.kind)
    scores = np.concatenate(
      [
        jax.device_get(self._read(self._params, part))
        for part in collate.microbatches(rows.batch, ROWS)
      ]
    )
    out = []
    for places, each in zip(rows.places, records):
      row = [float(scores[place]) for place in places]
      last = row[-1:] or [0.5]
      out.append(row + last * (len(each.steps) - len(row)))
    return out


def save(head: Head, directory: str | pathlib.Path) -> None:
  """Writes a head to a new directory."""
  path = pathlib.Path(directory)
  head.tokenizer.save(path)
  checkpoint.write_tree(str(path / 'params'), head.params)
  about = {
    'kind': head.kind,
    'row_length': head.row_length,
    'vocab_size': head.config.vocab_size,
  }
  text = json.dumps(about, indent=1)
  (path / 'head.json').write_text(f'{text}\n', encoding='utf-8')


def load(*, directory: str) -> Scorer:
  """Reads a head; the `learned` part of a reward calls what this returns.

  Raises:
    ValueError: there is none; says how one is made.
  """
  path = pathlib.Path(directory)
  if not (path / 'head.json').is_file():
    raise ValueError(
      f'{directory} holds no head: make one with tools/label_steps.py and '
      'tools/train_head.py'
    )
  about = json.loads((path / 'head.json').read_text(encoding='utf-8'))
  config = _shape(about['vocab_size'])
  like = sharding.put_same(
    jax.tree.map(
      lambda x: np.zeros(x.shape, x.dtype), params_lib.abstract(config)
    ),
    sharding.replicated(_mesh()),
  )
  params = jax.device_get(checkpoint.read_tree(str(path / 'params'), like))
  tokenizer = tokenizer_lib.load(path)
  return Scorer(
    Head(about['kind'], config, params, tokenizer, about['row_length'])
  )


def _shape(vocab_size: int) -> ModelConfig:
  return ModelConfig(vocab_size=vocab_size, value_head=True, **SHAPE)


def _mesh() -> jax.sharding.Mesh:
  """One device: a head is small, and each host asks its own."""
  return sharding.make_mesh({}, jax.local_devices()[:1])


def _objective(
  config: ModelConfig, params: dict, batch: TokenBatch, labels: jax.Array
) -> tuple[jax.Array, objective.Metrics]:
  """Σ w · (softplus(z) - y z): cross-entropy of labels [R, T]."""
  hidden = objective.hidden_states(config, params, batch)
  logits = heads.values(params, hidden)
  values = jax.nn.softplus(logits) - labels * logits
  loss = losses.aggregate(values, batch.weights)
  return loss, objective.Metrics({'loss': loss}, {})


def _rows(
  tokenizer: tokenizer_lib.Tokenizer,
  records: Sequence[steps_lib.Steps],
  row_length: int,
  kind: str,
) -> Rows:
  """Packs episodes whole; each is cut at the end of a row."""
  told = [_tokens(tokenizer, each) for each in records]
  told = [(ids[:row_length], ends) for ids, ends in told]
  members = packing.pack([len(ids) for ids, _ in told], row_length)
  height = max(-(-len(members) // ROWS) * ROWS, ROWS)
  batch = collate.empty_rows(height, row_length)
  labels = np.zeros((height, row_length), np.float32)
  places: list[list[tuple[int, int]]] = [[] for _ in records]
  for r, indices in enumerate(members):
    start = 0
    for segment, i in enumerate(indices, 1):
      ids, ends = told[i]
      span = r, slice(start, start + len(ids))
      batch.tokens[span] = ids
      batch.positions[span] = np.arange(len(ids))
      batch.segment_ids[span] = segment
      places[i] = [(r, start + end) for end in ends if end < len(ids)]
      pairs = list(zip(places[i], records[i].labels))
      if kind == 'outcome':  # the last one, if it was read
        pairs = pairs[-1:] if len(places[i]) == len(ends) else []
      for place, value in pairs:
        labels[place], batch.weights[place] = value, 1.0
      start += len(ids)
  return Rows(batch, labels, places)


def _tokens(
  tokenizer: tokenizer_lib.Tokenizer, record: steps_lib.Steps
) -> tuple[list[int], list[int]]:
  """Ids of an episode, and where each step ends in them."""
  ids, ends = [*tokenizer.encode(record.prompt), tokenizer.end_id], []
  for text in record.steps:
    ids += [*tokenizer.encode(text), tokenizer.end_id]
    ends.append(len(ids) - 1)
  return ids, ends


def _check(records: Sequence[steps_lib.Steps], kind: str) -> None:
  if kind not in KINDS:
    raise ValueError(f'kind={kind!r}: not one of {", ".join(KINDS)}')
  if not records:
    raise ValueError('no records: give episodes with labels')
  strange = {y for each in records for y in each.labels if not 0 <= y <= 1}
  if strange:
    raise ValueError(f'labels {sorted(strange)[:3]}: must be 0 to 1')
