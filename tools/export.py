"""Exports a run's policy in Hugging Face layout, or its episodes for TRL.

tools/run tools/export.py RUN --to=DIR [--which=last] [--dtype=bfloat16]
  [--part=policy|base|adapter]
tools/run tools/export.py RUN --to=FILE.jsonl --part=chat|preference
  [--which=all] [--kind=train] [--above=0] [--tokens]

Adapters are merged into the policy, or exported alone as the package `peft`
loads them on the base. `chat` writes the episodes that were paid more than
`--above`, to fine-tune on (config.sft.data=FILE.jsonl here, with `--tokens`
exactly as they were sampled); `preference` the best and the worst of each group
whose rewards differ.
"""

import argparse
import json
import operator
import pathlib
import sys

DTYPES = ('float32', 'bfloat16')
PARTS = ('policy', 'base', 'adapter')
EPISODES = ('chat', 'preference')


def main(arguments: list[str] | None = None) -> int:
  """Writes the model directory; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('run', help='run directory')
  parser.add_argument('--to', required=True, help='directory or file to write')
  parser.add_argument(
    '--which',
    default='last',
    help='last, best (by eval/success), the number of an iteration, or all '
    'that episodes were kept of',
  )
  parser.add_argument('--dtype', default='float32', choices=DTYPES)
  parser.add_argument(
    '--part',
    default='policy',
    choices=PARTS + EPISODES,
    help='of a run with adapters: merged, what is frozen, or they alone; or '
    'episodes, as conversations or as pairs',
  )
  parser.add_argument('--kind', default='train', help='train, eval or test')
  parser.add_argument('--above', type=float, default=0.0, help='outcome')
  parser.add_argument('--tokens', action='store_true', help='as sampled, too')
  options = parser.parse_args(arguments)
  try:
    if options.part in EPISODES:
      count = episodes(options)
      print(f'{options.run}: {count} records -> {options.to}')
      return 0
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
  from agentrl_jax import assembly, checkpoint, weights
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
    step = weights.step_of(saved, which, str(run))
    params = _params(saved, step, run, config, model, mesh, part)
  finally:
    saved.close()
  if part == 'adapter':
    peft.save(to, model, params, base=config.model.weights)
  else:
    _write_model(to, model, params, config, tokenizer, dtype)
  tokenizer.save(to)
  return step


def episodes(options: argparse.Namespace) -> int:
  """Writes episodes as JSON lines; returns how many records.

  Raises:
    ValueError: no such run or iteration, or no episode that is asked for.
  """
  from agentrl_jax import assembly
  from agentrl_jax.rollout import store
  from agentrl_jax.text import conversations

  run = pathlib.Path(options.run)
  config, steps = _config(run), store.steps(run, kind=options.kind)
  if options.which != 'all':
    steps = steps[-1:] if options.which == 'last' else [_number(options.which)]
  schemas, style = assembly.schemas(config), config.text.style
  tokenizer = _tokenizer(run, config) if options.tokens else None
  records = []
  for step in steps:
    read = store.read(run, step, kind=options.kind)
    found = [r.trajectory for r in read if r.trajectory.stop_reason.trainable]
    if options.part == 'preference':
      pairs = _pairs(found)
      records += [
        conversations.preference(
          one.prompt, *map(conversations.said, (one, two)), style, schemas
        )
        for one, two in pairs
      ]
      continue
    records += [
      conversations.dump(
        [*t.prompt, *conversations.said(t)],
        style,
        schemas,
        t.contexts if options.tokens else (),
        tokenizer,
      )
      for t in found
      if t.turns and t.outcome > options.above
    ]
  if not records:
    raise ValueError(f'{run}: no {options.kind} episode to write, of {steps}')
  return conversations.write(options.to, records)


def _pairs(trajectories):
  """Best and worst of each task whose total rewards differ."""
  groups = {}
  for t in trajectories:
    if t.turns:
      groups.setdefault(t.task.name, []).append(t)

  for members in groups.values():
    worth = operator.attrgetter('worth')
    best, worst = max(members, key=worth), min(members, key=worth)
    if best.worth > worst.worth:
      yield best, worst


def _number(which: str) -> int:
  if not which.isdigit():
    raise ValueError(f'--which={which}: give last, all or an iteration')
  return int(which)


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


if __name__ == '__main__':
  sys.exit(main())
