"""Exports a run's policy in Hugging Face layout, tokenizer and chat template.

tools/run tools/export.py RUN --to=DIR [--which=last] [--dtype=bfloat16]
  [--part=policy|base|adapter]

Adapters are merged into the policy, or exported alone as the package `peft`
loads them on the base.
"""

import argparse
import json
import pathlib
import sys

DTYPES = ('float32', 'bfloat16')
PARTS = ('policy', 'base', 'adapter')


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
  parser.add_argument(
    '--part',
    default='policy',
    choices=PARTS,
    help='of a run with adapters: merged, what is frozen, or they alone',
  )
  options = parser.parse_args(arguments)
  try:
    step = export(
      pathlib.Path(options.run),
      pathlib.Path(options.to),
      which=options.which,
      dtype=options.dtype,
      part=options.part,
    )
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1
  print(f'{options.run}, iteration {step} -> {options.to}')
  return 0


def export(
  run: pathlib.Path,
  to: pathlib.Path,
  *,
  which: str,
  dtype: str,
  part: str = 'policy',
) -> int:
  """Writes model, tokenizer and chat template; returns the iteration.

  Raises:
    ValueError: no run there, no such checkpoint in it, no adapters, or
      adapters in another type than float32.
  """
  from agentrl_jax import assembly, checkpoint
  from agentrl_jax.models import peft

  config = _config(run)
  tokenizer = _tokenizer(run, config)
  model = assembly.model_config(config, tokenizer.vocab_size)
  if part != 'policy' and model.lora is None:
    raise ValueError(f'{run} has no adapters: only --part=policy is there')
  if part == 'adapter' and dtype != 'float32':
    raise ValueError(
      f'--dtype={dtype}: adapters are written as they are trained, in float32; '
      'leave it out with --part=adapter'
    )
  mesh = assembly.mesh_to_play(config)
  saved = checkpoint.Checkpoints(
    str(run / 'checkpoints'), keep=1, best_metric='eval/success', read_only=True
  )
  try:
    step = _step(saved, which, run)
    params = _params(saved, step, run, config, model, mesh, part)
  finally:
    saved.close()
  if part == 'adapter':
    peft.save(to, model, params, base=config.model.weights)
  else:
    _write_model(to, model, params, config, tokenizer, dtype)
  tokenizer.save(to)
  return step


def _params(saved, step, run, config, model, mesh, part):
  import dataclasses

  from agentrl_jax import weights
  from agentrl_jax.models import lora

  if part == 'policy':
    return weights.restored(saved, step, str(run), model, mesh)
  plain = dataclasses.replace(model, lora=None)
  params = weights.adapted(saved, step, str(run), config, plain, mesh)
  return lora.base(params) if part == 'base' else params


def _write_model(to, model, params, config, tokenizer, dtype):
  from agentrl_jax.models import hf

  fields = {
    'eos_token_id': tokenizer.end_id,
    'pad_token_id': tokenizer.pad_id,
    'max_position_embeddings': config.rollout.max_context,
  }
  hf.save(to, model, params, dtype=dtype, fields=fields)
  generation = {
    'do_sample': True,
    'temperature': 1.0,
    'eos_token_id': tokenizer.end_id,
    'pad_token_id': tokenizer.pad_id,
  }
  text = json.dumps(generation, indent=2) + '\n'
  (to / 'generation_config.json').write_text(text, encoding='utf-8')


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
