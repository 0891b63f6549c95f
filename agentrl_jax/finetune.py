"""Supervised fine-tuning: the format of tool calls, from demonstrations.

The result is kept by content in the user's cache: every run whose data, model,
tokenizer and SFT settings (and seed) are the same starts from the same
weights. A killed run continues from its last checkpoint; one that has begun RL
keeps the result it began with, on whatever devices it goes on.
"""

import dataclasses
import functools
import hashlib
import pathlib
import shutil
from typing import Any

import jax
import ml_collections
import numpy as np

from agentrl_jax import (
  __version__,
  adapters,
  assembly,
  checkpoint,
  data,
  distributed,
  metrics,
  runtime,
  supervisor,
)
from agentrl_jax.batch import TokenBatch
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models import lora
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.rollout import collate, loop
from agentrl_jax.rollout.episode import Language
from agentrl_jax.sampler import engine

# Code that decides what fine-tuning gives: edited, it meets no old result.
_CODE = ('data.py', 'finetune.py', 'packing.py')
_CODE_FOLDERS = ('learner', 'losses', 'models', 'text')
# In a run's directory: the name of the result that it began with.
_NOTE = 'sft_name'


def identity(
  config: ml_collections.ConfigDict,
  demonstrations: str,
  tokenizer: Any,
  params: Any,
) -> str:
  """Returns the name of an SFT result: a hash of all that it depends on.

  Args:
    config: of the run.
    demonstrations: name of the dataset, itself a hash of its content.
    tokenizer: maps text to tokens.
    params: weights to begin with.
  """
  c = config
  folder = pathlib.Path(__file__).parent
  code = [folder / name for name in _CODE]
  for name in _CODE_FOLDERS:
    code += sorted((folder / name).rglob('*.py'))
  content = hashlib.sha256()
  for path in code:
    content.update(path.read_bytes())
  if distributed.count() > 1:  # no host holds all of it
    content.update(str(int(jax.jit(engine.checksum)(params))).encode())
  else:
    for leaf in jax.tree.leaves(jax.device_get(params)):
      content.update(leaf.tobytes())
  # Hosts, which agree on a name, may have unlike numbers of them.
  cores = runtime.num_cores() if distributed.count() == 1 else 0
  return assembly.digest(
    dict(
      version=[__version__, jax.__version__],
      content=content.hexdigest(),
      seed=c.seed,
      demonstrations=demonstrations,
      tokenizer=tokenizer.files(),
      style=c.text.style,
      schemas=assembly.schemas(config),
      memory=dataclasses.asdict(assembly.memory(c)),
      model=c.model.to_dict(),
      sft=c.sft.to_dict(),
      train=[
        c.train[name]
        for name in ('row_length', 'rows', 'head_chunk', 'param_dtype')
      ],
      lora=c.lora.to_dict() if c.lora.sft else {},
      devices=[c.mesh.to_dict(), jax.default_backend(), cores],
    )
  )


def run(
  config: ml_collections.ConfigDict,
  workdir: str,
  *,
  language: Language,
  model: ModelConfig,
  mesh: jax.sharding.Mesh,
  params: Any,
  display: Any,
  stop: Any,
) -> Any:
  """Fine-tunes `params` (not donated) and returns the new weights.

  With `lora.sft` adapters are trained and the base stays as it is; without,
  all weights are, whatever adapters come after.

  Writes `WORKDIR/sft.jsonl` and `WORKDIR/sft_name`; checkpoints lie in
  `WORKDIR/sft` until the result is in the cache.

  Raises:
    loop.Interrupted: `stop` said so; the state was saved.

  On several hosts the result stays in `WORKDIR/sft`, which all of them read.
  """
  work = pathlib.Path(workdir)
  if config.lora.sft:
    params = adapters.attach(config, model, params, mesh)
  else:
    model = dataclasses.replace(model, lora=None)
  trained, frozen = lora.split(params)
  display.stage('generating demonstrations')
  records = assembly.demonstrations(config)
  name = _begun_with(work, config.sft.steps, display) or identity(
    config, records.directory.name, language.tokenizer, params
  )
  cached = _cached(name)

  def train():
    # A checkpoint of other content is not gone on from.
    saved = checkpoint.Checkpoints(str(work / 'sft' / name), keep=1)
    parts = config, work, saved, language, model, mesh
    return _train(*parts, records, params, display, stop)

  if not all(distributed.exchange(cached.exists())):
    result = train()
    if distributed.count() > 1:
      _note(work, name)
      return lora.join(result, frozen)

    def fill(directory):
      checkpoint.write_tree(f'{directory}/params', result)
      shutil.copy(work / 'sft.jsonl', directory)

    checkpoint.publish_directory(str(cached), fill)
  else:
    display.note(f'fine-tuned weights reused from {cached}')
  _note(work, name)
  if distributed.is_first():
    shutil.rmtree(work / 'sft', ignore_errors=True)
    # Always from the cache: a resumed run and its siblings read the same bytes.
    shutil.copy(cached / 'sft.jsonl', work / 'sft.jsonl.tmp')
    (work / 'sft.jsonl.tmp').replace(work / 'sft.jsonl')
  return lora.join(checkpoint.read_tree(f'{cached}/params', trained), frozen)


def imitator(
  config: ml_collections.ConfigDict,
  model: ModelConfig,
  mesh: jax.sharding.Mesh,
  fields: ml_collections.ConfigDict,
  updates: int,
) -> step.Learner:
  """Returns a learner that makes the tokens of rows more likely.

  Args:
    config: of the run; rows and types are those of `config.train`.
    model, mesh: the policy and its devices.
    fields: of the optimizer.
    updates: of its schedule.
  """
  c = config.train
  chunk = objective.head_chunk(c.head_chunk, model.vocab_size)
  return step.Learner(
    model,
    functools.partial(objective.likelihood, head_chunk=chunk),
    optimizer.make(fields, updates),
    mesh,
    c.rows,
    c.param_dtype,
  )


def _cached(name: str) -> pathlib.Path:
  return assembly.cache_root() / 'sft' / name


def _begun_with(work: pathlib.Path, steps: int, display: Any) -> str:
  """Returns which result a run that goes on began with, '' for none.

  Its name says on what devices it was made, so that on others it would be
  sought in vain.
  """
  note, name = work / _NOTE, ''
  if supervisor.checkpoints(work) and note.is_file():
    name = note.read_text()
  left = (work / 'sft' / name / str(steps)).is_dir()  # by several hosts
  said = distributed.exchange([name, left or _cached(name).exists()])
  name = said[0][0]
  if name and all(words == [name, True] for words in said):
    return name
  if name:
    display.warn(
      f'the fine-tuned weights that {work} began with are not in '
      f'{_cached(name)}: trained anew, which matters for a KL to them only'
    )
  return ''


def _note(work: pathlib.Path, name: str) -> None:
  if distributed.is_first():
    partial = work / f'{_NOTE}.tmp'
    partial.write_text(name)
    partial.replace(work / _NOTE)


def _train(
  config, work, saved, language, model, mesh, records, params, display, stop
):
  c = config.sft
  display.stage('tokenising demonstrations')
  rows = data.sft_rows(
    assembly.with_tools(config, records),
    language.tokenizer,
    language.style,
    row_length=config.train.row_length,
    tools=assembly.schemas(config),
    observation_weight=c.observation_weight,
    memory=language.memory,
  )
  batches = data.sft_batches(rows, num_rows=c.rows, seed=config.seed)
  learner = imitator(config, model, mesh, c.optimizer, c.steps)
  kind = metrics.Writer if distributed.is_first() else metrics.Mute
  writer = kind(work, name='sft', tensorboard=False)
  state, start = learner.create(params), 0
  if saved.latest is not None:
    start = saved.latest
    state, _ = saved.restore(start, state)
  writer.truncate(start)
  own = distributed.own(config.train.rows)
  if start < c.steps:
    display.stage('compiling the fine-tuning step')
  for update in range(start, c.steps):
    if any(distributed.exchange(stop())):
      if update != saved.latest:
        saved.save(update, state, {})
      raise loop.Interrupted
    rows = collate.microbatches(batch(batches[update]), config.train.rows)
    rows = [jax.tree.map(lambda x: x[own], part) for part in rows]
    state, measured, info = learner.update(state, rows)
    done = update + 1
    if done % 10 == 0 or done == c.steps:
      row = _row(measured, info)
      writer.write(done, row, updates=done)
      display.progress(
        'fine-tuning', done, c.steps, nll=row['sft/nll'], loss=row['sft/loss']
      )
    due = done % config.checkpoint.sft_every == 0 and done < c.steps
    if due or (done == c.steps and distributed.count() > 1):
      saved.save(done, state, {})
  writer.close()
  saved.close()
  return state.params


def _row(measured, info) -> dict[str, float]:
  sums = jax.device_get(measured.sums)
  row = {
    'sft/loss': float(sums['loss']),
    'sft/nll': float(sums['nll'] / max(sums['tokens'], 1)),
    'sft/grad_norm': float(info['grad_norm']),
  }
  if not np.isfinite(row['sft/loss']):
    raise FloatingPointError(
      f'fine-tuning diverged: sft/loss is {row["sft/loss"]}; lower '
      'config.sft.optimizer.learning_rate'
    )
  return row


def batch(arrays: dict[str, np.ndarray]) -> TokenBatch:
  """Makes a batch whose weights sum to one over all tokens that count."""
  empty = collate.empty_rows(*arrays['tokens'].shape)
  total = max(float(arrays['weights'].sum()), 1e-9)
  return empty.replace(
    **{
      **arrays,
      'weights': (arrays['weights'] / total).astype(np.float32),
    }
  )
