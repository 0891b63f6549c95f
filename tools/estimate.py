"""How much memory and time would a policy need on given accelerators?

  tools/run tools/estimate.py --model=qwen2.5-7b --mesh=fsdp=8 --hardware=h100
    [--rows=1] [--row_length=4096] [--remat=block] [--slots=256] [...]
  tools/run tools/estimate.py --model=qwen2.5-1.5b --mesh=fsdp=8 --compile
  tools/run tools/estimate.py --table=DIR   # then: tools/record.py DIR

By arithmetic, printed line by line: docs/scale.md has the tables, the sources
of the accelerators' numbers and how far XLA's count is away. With --compile
the learner's two programs are compiled besides for as many forced CPU devices
as the mesh has, from shapes alone: no weight exists and nothing is run; --json
prints what `tools/record.py` keeps of both.
"""

import argparse
import dataclasses
import difflib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from agentrl_jax import footprint, sharding
from agentrl_jax.models import config as config_lib
from agentrl_jax.models import params as params_lib

# Preset -> tokens that its published weights know.
VOCABULARIES = {
  'qwen3_0.6b': 151_936,
  'qwen3_1.7b': 151_936,
  'qwen3_8b': 151_936,
  'qwen3_32b': 151_936,
  'qwen3_30b_a3b': 151_936,
  'qwen2.5_1.5b': 151_936,
  'qwen2.5_7b': 152_064,
  'llama3_8b': 128_256,
  'smollm2_135m': 49_152,
  'mistral_7b': 32_000,
  'gemma3_1b': 262_144,
  'tiny': 512,
  '5m': 4096,
}

# What the table of docs/scale.md compares, with its default plan.
TABLE = (
  ('qwen2.5-1.5b', 'fsdp=8'),
  ('qwen2.5-7b', 'fsdp=8'),
  ('qwen3-32b', 'fsdp=8,tensor=8'),
  ('qwen3-30b-a3b', 'fsdp=4,expert=16'),
)
# Of a device's memory; the rest is the allocator's and the program's own.
_USABLE = 0.9

# How each number of `footprint.memory` and `footprint.seconds` comes about.
HOW = {
  'weights': '4 bytes x P, shared out by the rules of sharding.py',
  'moments': '8 bytes x P, likewise',
  'gradient_sum': '4 bytes x P, likewise: microbatches are added up',
  'rounded_weights': '2 bytes x P while gradients are taken (param_dtype)',
  'gradient': 'of one microbatch, P in param_dtype',
  'gathered_blocks': 'two blocks that fsdp brings together',
  'activations': 'what remat keeps of L blocks, and one block with gradients',
  'loss': '3 x rows x head_chunk x V x 4, and the head and its gradient',
  'sampler_weights': 'P in the dtype of activations, split by tensor alone',
  'cache': '2 x L x K x C x context x slots of this device',
  'reference': '4 bytes x P',
  'prefill': '2 x active P without the head x prompt tokens / '
  '(devices x FLOP/s x share)',
  'decode': 'steps x (weights + half the cache) / (bandwidth x share)',
  'train': '6 x active P x tokens (8 with remat=block), and attention',
  'publish': 'weights over the link, three times through memory',
}


def main(arguments: list[str] | None = None) -> int:
  """Prints the estimate; returns the exit status."""
  options = parse(arguments)
  if options.table:
    folder = pathlib.Path(options.table)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'table.md').write_text(table(), encoding='utf-8')
    (folder / 'numbers.json').write_text(json.dumps({'rows': len(TABLE)}))
    return 0
  try:
    plan = make_plan(options)
    if options.child:
      print(json.dumps(compiled(plan)), flush=True)
      return 0
    if options.json:
      print(
        json.dumps({'name': f'{options.remat}_arithmetic', **learner(plan)})
      )
    else:
      _tell(plan, options)
    if options.compile:
      given = sys.argv[1:] if arguments is None else arguments
      counted = _in_child(plan, given)
      _show(counted, f'{options.remat}_' if options.json else '')
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1
  return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
  """Reads the command line; numbers of a plan are options by its names."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--model', default='qwen2.5-1.5b', help='a preset')
  parser.add_argument(
    '--mesh', default='fsdp=8', help='such as fsdp=8,tensor=2'
  )
  parser.add_argument('--hardware', default='h100', help='or all of them: all')
  parser.add_argument('--remat', default='block', help='none, block or dots')
  parser.add_argument('--dtype', default='bfloat16', help='of activations')
  parser.add_argument('--param_dtype', default='bfloat16')
  parser.add_argument('--mfu', type=float, default=0.4, help='of gradients')
  parser.add_argument('--reference', action='store_true', help='for a KL')
  parser.add_argument('--compile', action='store_true', help='ask XLA besides')
  parser.add_argument('--json', action='store_true', help='lines to record')
  parser.add_argument('--table', default='', help='writes DIR/table.md')
  parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
  for field in dataclasses.fields(footprint.Plan):
    if field.type is int:
      parser.add_argument(f'--{field.name}', type=int, default=field.default)
  return parser.parse_args(arguments)


def make_plan(options: argparse.Namespace) -> footprint.Plan:
  """Returns the plan of a command line.

  Raises:
    ValueError: an unknown model, axis or way to recompute.
  """
  name = options.model.lower().replace('-', '_')
  if name not in VOCABULARIES:
    near = difflib.get_close_matches(name, VOCABULARIES, n=1)
    hint = f'; did you mean {near[0]}?' if near else ''
    known = ', '.join(sorted(VOCABULARIES))
    raise ValueError(f'--model={options.model}: not one of {known}{hint}')
  mesh = read_mesh(options.mesh)
  for field, known in (
    ('remat', ('none', 'block', 'dots')),
    ('dtype', ('float32', 'bfloat16')),
    ('param_dtype', ('float32', 'bfloat16')),
  ):
    if getattr(options, field) not in known:
      raise ValueError(
        f'--{field}={getattr(options, field)}: not one of {", ".join(known)}'
      )
  fields = {**config_lib.PRESETS[name], 'remat': options.remat}
  model = config_lib.ModelConfig(
    vocab_size=VOCABULARIES[name], dtype=options.dtype, **fields
  )
  numbers = {
    field.name: getattr(options, field.name)
    for field in dataclasses.fields(footprint.Plan)
    if field.type is int
  }
  return footprint.Plan(
    model=model,
    mesh=mesh,
    param_dtype=options.param_dtype,
    fused_attention=not options.compile,
    reference=options.reference,
    **numbers,
  )


def read_mesh(text: str) -> dict[str, int]:
  """Reads axis -> size from a text such as 'fsdp=8,tensor=2'.

  Raises:
    ValueError: an unknown axis, or no size.
  """
  mesh = {}
  for part in text.split(','):
    axis, _, size = part.partition('=')
    if axis not in sharding.AXES or not size.isdigit() or int(size) < 1:
      raise ValueError(
        f'--mesh={text}: {part!r} is not AXIS=SIZE with an axis of '
        f'{", ".join(sharding.AXES)}'
      )
    mesh[axis] = int(size)
  return mesh


def _tell(plan: footprint.Plan, options: argparse.Namespace) -> None:
  """Prints the arithmetic."""
  m = plan.model
  names = list(footprint.HARDWARE)
  if options.hardware != 'all':
    names = [options.hardware]
  unknown = set(names) - set(footprint.HARDWARE)
  if unknown:
    raise ValueError(
      f'--hardware={options.hardware}: not one of all, '
      f'{", ".join(footprint.HARDWARE)}'
    )
  weights, active = params_lib.count(m), footprint.active_count(m)
  print(
    f'{options.model}: P = {weights / 1e9:.2f} G weights, '
    f'{active / 1e9:.2f} G of them at work for a token; '
    f'{options.mesh}: {plan.num_devices} devices'
  )
  print('\nmemory of a device [GB]')
  parts = footprint.memory(plan)
  for name, size in parts.items():
    print(f'  {name:16s} {size / footprint.GIGA:8.2f}   {HOW[name]}')
  total = sum(parts.values()) / footprint.GIGA
  sizes = ', '.join(
    f'{n} has {footprint.HARDWARE[n].memory / footprint.GIGA:.0f}'
    for n in names
  )
  print(f'  {"all":16s} {total:8.2f}   {sizes}')
  tokens = plan.trajectories * (plan.prompt + plan.sampled)
  print(
    f'\nseconds of an iteration: {plan.trajectories} trajectories of '
    f'{plan.prompt} + {plan.sampled} tokens, {tokens / 1e6:.2f} M in all'
  )
  print(f'  {"":10s}' + ''.join(f'{name:>9s}' for name in names))
  times = [
    footprint.seconds(plan, footprint.HARDWARE[name], mfu=options.mfu)
    for name in names
  ]
  for stage in times[0]:
    row = ''.join(f'{t[stage]:9.1f}' for t in times)
    print(f'  {stage:10s}{row}   {HOW[stage]}')
  row = ''.join(f'{sum(t.values()):9.1f}' for t in times)
  print(f'  {"all":10s}{row}   tools and environments come besides')


def learner(plan: footprint.Plan) -> dict[str, float]:
  """Returns what the learner's programs hold on a device by arithmetic, in GB.

  Returns:
    'state', the arguments of the update; 'temp', the gradient's temporaries.
  """
  parts = footprint.memory(plan)
  of = {
    'state': ('weights', 'moments', 'gradient_sum'),
    'temp': ('gradient', 'gathered_blocks', 'activations', 'loss'),
  }
  return {
    name: sum(parts[part] for part in those) / footprint.GIGA
    for name, those in of.items()
  }


def _in_child(
  plan: footprint.Plan, arguments: list[str]
) -> dict[str, dict[str, float]]:
  """Returns `compiled` of a process with as many forced devices.

  Raises:
    ValueError: it failed; what it said stands above.
  """
  flags = f'--xla_force_host_platform_device_count={plan.num_devices}'
  done = subprocess.run(
    [sys.executable, __file__, *arguments, '--child'],
    env={**os.environ, 'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu'},
    stdout=subprocess.PIPE,
    text=True,
  )
  if done.returncode:
    raise ValueError(f'the compilation failed with status {done.returncode}')
  return json.loads(done.stdout.splitlines()[-1])


def _show(counted: dict[str, dict[str, float]], prefix: str) -> None:
  """Prints what XLA counted; as JSON lines where they have a prefix."""
  if not prefix:
    print("\nby XLA's own count for CPU devices, compiled and not run [GB]")
    print(f'  {"":12s} {"arguments":>10s} {"in place":>10s} {"temporary":>10s}')
  for name, sizes in counted.items():
    gb = {k: x / footprint.GIGA for k, x in sizes.items() if k != 'seconds'}
    if prefix:
      print(json.dumps({'name': prefix + name, **gb}))
      continue
    row = ''.join(f'{gb[k]:11.2f}' for k in ('argument', 'alias', 'temp'))
    print(f'  {name:12s}{row}   compiled in {sizes["seconds"]:.0f} s')


def table() -> str:
  """Returns the table of docs/scale.md: GB a device, seconds an iteration."""
  names = list(footprint.HARDWARE)
  lines = [
    '| policy | mesh | devices | GB a device | '
    + ' | '.join(f'{n} [s]' for n in names)
    + ' |',
    '|---' * (4 + len(names)) + '|',
  ]
  for model, mesh in TABLE:
    plan = make_plan(parse([f'--model={model}', f'--mesh={mesh}']))
    total = sum(footprint.memory(plan).values())
    cells = [model, f'`{mesh}`', str(plan.num_devices)]
    cells.append(f'{total / footprint.GIGA:.1f}')
    for hardware in footprint.HARDWARE.values():
      stages = footprint.seconds(plan, hardware)
      fits = total <= _USABLE * hardware.memory
      cells.append(
        f'{sum(stages.values()):.0f} ({stages["decode"]:.0f} decode)'
        if fits
        else 'too large'
      )
    lines.append(f'| {" | ".join(cells)} |')
  return '\n'.join(lines) + '\n'


def compiled(plan: footprint.Plan) -> dict[str, dict[str, float]]:
  """Compiles gradient and update of a plan for this process's devices.

  Returns:
    'accumulate' and 'apply' -> bytes of a device: argument, output, alias (of
    the output that lies where an argument lay), temp; and seconds.
  """
  import time

  out = {}
  for name, lowered in lowered_step(plan).items():
    start = time.perf_counter()
    sizes = lowered.compile().memory_analysis()
    out[name] = {
      'argument': sizes.argument_size_in_bytes,
      'output': sizes.output_size_in_bytes,
      'alias': sizes.alias_size_in_bytes,
      'temp': sizes.temp_size_in_bytes,
      'seconds': time.perf_counter() - start,
    }
  return out


def lowered_step(plan: footprint.Plan) -> dict[str, Any]:
  """Lowers the learner's programs as a run with this plan would have them."""
  from agentrl_jax import losses
  from agentrl_jax.learner import objective, optimizer, step
  from agentrl_jax.rollout import collate

  mesh = sharding.make_mesh(plan.mesh)
  num_rows = plan.rows * plan.row_parts
  options = dict(name='adamw', learning_rate=1e-6, warmup=0, b1=0.9, b2=0.99)
  options |= dict(schedule='constant', epsilon=1e-8, weight_decay=0.0)
  learner = step.Learner(
    plan.model,
    objective.PolicyObjective(
      losses.LOSSES['ppo_clip'], head_chunk=plan.head_chunk
    ),
    optimizer.make({**options, 'clip_norm': 1.0}, 100),
    mesh,
    num_rows,
    plan.param_dtype,
  )
  return learner.lower(collate.empty_rows(num_rows, plan.row_length))


if __name__ == '__main__':
  sys.exit(main())
