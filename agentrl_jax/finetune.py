"""Supervised fine-tuning: the format of tool calls, from demonstrations.

The result is kept by content in the user's cache: every run whose data, model,
tokenizer and SFT settings (and seed) are the same starts from the same
weights. A killed run continues from its last checkpoint.
"""

import pathlib
import shutil
from typing import Any

import jax
import ml_collections
import numpy as np

from agentrl_jax import (
  __version__,
  assembly,
  checkpoint,
  data,
  metrics,
  runtime,
)
from agentrl_jax.batch import TokenBatch
from agentrl_jax.learner import objective, optimizer, step
from agentrl_jax.models.config import ModelConfig
from agentrl_jax.rollout import collate, loop
from agentrl_jax.rollout.episode import Language


def identity(config: ml_collections.ConfigDict) -> str:
  """Returns the name of an SFT result: a hash of all that it depends on."""
  c = config
  return assembly.digest(
    dict(
      version=__version__,
      seed=c.seed,
      env=[c.env.name, c.env.options.to_dict()],
      text=c.text.to_dict(),
      model=c.model.to_dict(),
      sft={k: v for k, v in c.sft.to_dict().items()},
      row_length=c.train.row_length,
      devices=[c.mesh.to_dict(), jax.default_backend(), runtime.num_cores()],
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

  Writes `WORKDIR/sft.jsonl`; checkpoints lie in `WORKDIR/sft` until the result
  is in the cache.

  Raises:
    loop.Interrupted: `stop` said so; the state was saved.
  """
  work = pathlib.Path(workdir)
  cached = assembly.cache_root() / 'sft' / identity(config)
  if not cached.exists():
    display.stage('fine-tuning on demonstrations')
    result = _train(config, work, language, model, mesh, params, display, stop)

    def fill(directory):
      checkpoint.write_tree(f'{directory}/params', result)
      shutil.copy(work / 'sft.jsonl', directory)

    checkpoint.publish_directory(str(cached), fill)
    shutil.rmtree(work / 'sft', ignore_errors=True)
  else:
    display.note(f'fine-tuned weights reused from {cached}')
  # Always from the cache: a resumed run and its siblings read the same bytes.
  shutil.copy(cached / 'sft.jsonl', work / 'sft.jsonl.tmp')
  (work / 'sft.jsonl.tmp').replace(work / 'sft.jsonl')
  return checkpoint.read_tree(f'{cached}/params', params)


def _train(config, work, language, model, mesh, params, display, stop):
  c = config.sft
  display.stage('generating demonstrations')
  records = assembly.demonstrations(config)
  display.stage('tokenising demonstrations')
  rows = data.sft_rows(
    [records[i] for i in range(len(records))],
    language.tokenizer,
    language.style,
    row_length=config.train.row_length,
    observation_weight=c.observation_weight,
  )
  batches = data.sft_batches(rows, num_rows=c.rows, seed=config.seed)
  learner = step.Learner(
    model,
    objective.likelihood,
    optimizer.make(c.optimizer, c.steps),
    mesh,
    c.rows,
  )
  saved = checkpoint.Checkpoints(str(work / 'sft'), keep=1)
  writer = metrics.Writer(work, name='sft', tensorboard=False)
  state, start = learner.create(params), 0
  if saved.latest is not None:
    start = saved.latest
    state, _ = saved.restore(start, state)
  writer.truncate(start)
  display.stage('compiling the fine-tuning step')
  for update in range(start, c.steps):
    if stop():
      saved.save(update, state, {})
      raise loop.Interrupted
    batch = _batch(batches[update])
    state, measured, info = learner.update(state, [batch])
    done = update + 1
    if done % 10 == 0 or done == c.steps:
      row = _row(measured, info)
      writer.write(done, row, updates=done)
      display.progress(
        'fine-tuning', done, c.steps, nll=row['sft/nll'], loss=row['sft/loss']
      )
    if done % config.checkpoint.sft_every == 0 and done < c.steps:
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


def _batch(arrays: dict[str, np.ndarray]) -> TokenBatch:
  """Makes a batch whose weights sum to one over all tokens that count."""
  empty = collate.empty_rows(*arrays['tokens'].shape)
  total = max(float(arrays['weights'].sum()), 1e-9)
  return empty.replace(
    **{
      **arrays,
      'weights': (arrays['weights'] / total).astype(np.float32),
    }
  )
