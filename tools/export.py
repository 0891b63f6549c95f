"""Exports a run's policy in Hugging Face layout, tokenizer and chat template.

tools/run tools/export.py RUN --to=DIR [--which=last] [--dtype=bfloat16]
"""

import argparse
import json
import pathlib
import sys

DTYPES = ('float32', 'bfloat16')


def main(arguments: list[str] | None = None) -> int:
  """Writes the model directory; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('run', help='run directory')
  parser.add_argument('--to', required=True, help='directory to write')
  parser.add_argument(
    '--which',
    default='last',
    help='last, best (by eval/success) or the number of an iteration',
  )
  parser.add_argument('--dtype', default='float32', choices=DTYPES)
  options = parser.parse_args(arguments)
  try:
    step = export(
      pathlib.Path(options.run),
      pathlib.Path(options.to),
      which=options.which,
      dtype=options.dtype,
    )
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1
  print(f'{options.run}, iteration {step} -> {options.to}')
  return 0


def export(
  run: pathlib.Path, to: pathlib.Path, *, which: str, dtype: str
) -> int:
  """Writes model, tokenizer and chat template; returns the iteration.

  Raises:
    ValueError: no run there, or no such checkpoint in it.
  """
  import jax
  import numpy as np

  from agentrl_jax import assembly, checkpoint
  from agentrl_jax.models import hf

  config = _config(run)
  tokenizer = _tokenizer(run, config)
  model = assembly.model_config(config, tokenizer.vocab_size)
  like = assembly.abstract_params(model, assembly.mesh(config))
  saved = checkpoint.Checkpoints(
    str(run / 'checkpoints'), keep=1, best_metric='eval/success', read_only=True
  )
  try:
    step = _step(saved, which, run)
    params = saved.restore_part(step, {'params': like})['params']
  finally:
    saved.close()
  params = jax.tree.map(lambda x: np.asarray(x).astype(np.dtype(dtype)), params)
  fields = {
    'eos_token_id': tokenizer.end_id,
    'pad_token_id': tokenizer.pad_id,
    'max_position_embeddings': config.rollout.max_context,
  }
  hf.save(to, model, params, fields=fields)
  tokenizer.save(to)
  generation = {
    'do_sample': True,
    'temperature': 1.0,
    'eos_token_id': tokenizer.end_id,
    'pad_token_id': tokenizer.pad_id,
  }
  text = json.dumps(generation, indent=2) + '\n'
  (to / 'generation_config.json').write_text(text, encoding='utf-8')
  return step


def _config(run: pathlib.Path):
  from agentrl_jax import config

  path = run / 'config.json'
  if not path.is_file() or not (run / 'checkpoints').is_dir():
    raise ValueError(
      f'{run} is no run directory with checkpoints: it needs config.json and '
      'checkpoints/'
    )
  return config.of_run(run)


def _tokenizer(run: pathlib.Path, config):
  from agentrl_jax import assembly
  from agentrl_jax.text import tokenizer

  if (run / 'tokenizer').is_dir():
    return tokenizer.load(run / 'tokenizer')
  return assembly.language(config).tokenizer


def _step(saved, which: str, run: pathlib.Path) -> int:
  step = {'last': saved.latest, 'best': saved.best}.get(which)
  if step is None and which.isdigit() and int(which) in saved.steps:
    step = int(which)
  if step is None:
    raise ValueError(
      f'{run} has no checkpoint {which!r}; give last, best or one of '
      f'{saved.steps}'
    )
  return step


if __name__ == '__main__':
  sys.exit(main())
