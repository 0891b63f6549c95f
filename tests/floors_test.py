"""Holds ARCHITECTURE.md's floors and STYLE.md's ceilings by reading the code.

A module may import from lower floors and from its own folder. Modules are
found on disk, so that a new one must be given a floor in FLOORS below.
"""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'agentrl_jax'

# First name below agentrl_jax -> floor.
FLOORS = {
  'types': 0,
  'batch': 0,
  'packing': 0,
  'bounds': 0,
  'defaults': 0,
  'validation': 0.3,  # reads the bounds
  'config': 0.5,  # its defaults are checked by validation
  'reductions': 0,
  'rng': 0,
  'sharding': 0,
  'distributed': 0,
  'tables': 0,
  'losses': 1,
  'advantages': 1,
  'models': 2,
  'text': 2,
  'sampler': 3,
  'learner': 3,
  'footprint': 3,
  'envs': 4,
  'rewards': 4,
  'rollout': 5,
  'checkpoint': 5,
  'data': 5,
  'display': 5,
  'gateway': 5,
  'metrics': 5,
  'plots': 5,
  'report': 5,
  'runtime': 5,
  'supervisor': 5,
  'doctor': 5.5,  # reads what the rollout made
  'adapters': 5.3,  # what is frozen beside them
  'pretrained': 5.3,
  'weights': 5.4,
  'scorer': 5.5,  # a reward that needs a device
  'assembly': 5.5,  # config -> parts; shared by the programs
  'evaluate': 6,
  'finetune': 6,
  'serve': 6,
  'train': 6,
  'rejection': 6.5,  # training and fine-tuning in turns
}

# What a part may not import beside the rule on floors.
FORBIDDEN = {
  'types': r'jax|flax|numpy',
  'config': r'jax|flax|numpy',
  'validation': r'jax|flax|numpy',
  'bounds': r'jax|flax|numpy',
  'defaults': r'jax|flax|numpy',
  'losses': r'flax|orbax|grain|transformers|tensorflow_datasets|os|pathlib',
  'advantages': r'flax|orbax|grain|transformers|tensorflow_datasets|os|pathlib',
  'text': r'jax|flax|grain|orbax',
  'envs': r'jax|flax|grain|orbax|optax|chex',
  'rewards': r'jax|flax|grain|orbax|optax|chex',
  'rollout': r'agentrl_jax\.learner',
  'checkpoint': r'agentrl_jax\.learner',
  'data': r'agentrl_jax\.learner',
}

# Programs on the device whose carry a split would hide: up to 100 lines.
LONG = frozenset({'sampler.decode.decode_turn'})

MAX_FILE = 500
MAX_FUNCTION = 60
MAX_LONG_FUNCTION = 100


def module_name(path: pathlib.Path) -> str:
  """agentrl_jax/models/hf.py -> models.hf."""
  parts = path.relative_to(PACKAGE).with_suffix('').parts
  return '.'.join(part for part in parts if part != '__init__')


SOURCES = {
  module_name(path): path.read_text(encoding='utf-8')
  for path in sorted(PACKAGE.rglob('*.py'))
}


def imports(source: str) -> set[str]:
  """Dotted names that the source imports, anywhere in it; also by string."""
  found = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert not node.level, 'relative import: write the whole name'
      found |= {f'{node.module}.{alias.name}' for alias in node.names}
    elif isinstance(node, ast.Constant):
      named = re.fullmatch(r'agentrl_jax(\.\w+)+(:\w+)?', str(node.value))
      found |= {str(node.value).replace(':', '.')} if named else set()
  return found


def faults(name: str, source: str) -> list[str]:
  """What `source`, as module `name`, imports and should not."""
  part = name.partition('.')[0]
  if part not in FLOORS:
    return [f'agentrl_jax.{name} is new: give {part!r} a floor in FLOORS']
  out = []
  for target in sorted(imports(source)):
    if re.match(
      rf'(experiments|tools|tests)\b|({FORBIDDEN.get(part)})\b', target
    ):
      out.append(f'agentrl_jax.{name} may not import {target}')
    if not re.match(r'agentrl_jax\.', target):
      continue
    other = target.split('.')[1]
    inside = other == part and '.' in f'{name}.'
    if other == '__version__' or inside:
      continue
    if other not in FLOORS:
      out.append(f'agentrl_jax.{name} imports {target}, which has no floor')
    elif FLOORS[other] >= FLOORS[part]:
      out.append(
        f'agentrl_jax.{name} (floor {FLOORS[part]}) imports {target} '
        f'(floor {FLOORS[other]})'
      )
  return out


def functions(source: str) -> list[tuple[str, int]]:
  """(dotted name, lines without the docstring) of every function."""
  out = []

  def walk(node, prefix):
    for child in ast.iter_child_nodes(node):
      named = isinstance(child, ast.FunctionDef | ast.ClassDef)
      name = f'{prefix}{child.name}' if named else prefix
      if isinstance(child, ast.FunctionDef):
        size = child.end_lineno - child.lineno + 1
        if ast.get_docstring(child) is not None:
          size -= child.body[0].end_lineno - child.body[0].lineno + 1
        out.append((name, size))
      walk(child, f'{name}.' if named else prefix)

  walk(ast.parse(source), '')
  return out


@pytest.mark.parametrize('name', SOURCES)
def test_imports_only_lower_floors_or_its_own_folder(name):
  if name:
    assert not faults(name, SOURCES[name])
  else:
    assert not imports(SOURCES[name])


@pytest.mark.parametrize(
  'name, source',
  [
    ('losses.policy', 'from agentrl_jax.advantages import grouped'),  # sibling
    ('losses.policy', 'from agentrl_jax.models import params'),  # above
    ('losses.policy', 'def f():\n  import flax'),  # lazily, third party
    ('metrics', 'from agentrl_jax.rollout import store'),  # sibling
    ('envs.flight', 'import jax.numpy as jnp'),
    ('envs.flight', "X = 'agentrl_jax.rewards.outcome:Outcome'"),  # by string
    ('rollout.loop', 'from agentrl_jax.learner import state'),
    ('train', 'import experiments.launch'),
    ('train', 'from agentrl_jax import finetune'),
    ('novelty', ''),
  ],
)
def test_a_wrong_import_is_found(name, source):
  assert len(faults(name, source)) == 1


@pytest.mark.parametrize(
  'name, source',
  [
    ('losses.policy', 'from agentrl_jax.losses import kl'),
    ('losses.policy', 'from agentrl_jax import reductions\nimport jax'),
    ('rollout.loop', 'from agentrl_jax.rollout import anchors'),
    ('train', 'from agentrl_jax import metrics\nfrom agentrl_jax import types'),
    ('envs.flight', 'import jaxtyping'),  # another word, not jax
  ],
)
def test_a_right_import_passes(name, source):
  assert not faults(name, source)


@pytest.mark.parametrize('name', SOURCES)
def test_files_and_functions_stay_short(name):
  lines = SOURCES[name].count('\n')
  assert lines <= MAX_FILE, f'{lines} lines, ceiling {MAX_FILE}'
  for function, size in functions(SOURCES[name]):
    listed = f'{name}.{function}' in LONG
    ceiling = MAX_LONG_FUNCTION if listed else MAX_FUNCTION
    assert size <= ceiling, f'{function}: {size} lines, ceiling {ceiling}'


@pytest.mark.parametrize('name', SOURCES)
def test_no_print_and_no_bare_except(name):
  for node in ast.walk(ast.parse(SOURCES[name])):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
      assert node.func.id != 'print', f'print in line {node.lineno}'
    if isinstance(node, ast.ExceptHandler):
      assert node.type is not None, f'bare except in line {node.lineno}'


def run_fresh(program: str) -> str:
  """Runs a program in a fresh interpreter and returns what it printed."""
  result = subprocess.run(
    [sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True
  )
  assert result.returncode == 0, result.stderr
  return result.stdout


LOADED = """
import sys
bad = sorted(set(sys.modules) & set({names!r}.split()))
assert not bad, f'loaded: {{bad}}'
"""

PLAY = """
from agentrl_jax import envs, types
for name in envs.ENVS:
  env = envs.make(name)
  sizes = dict(num_train=2, num_validation=1, num_test=1)
  task = envs.tasks(name, 'train', **sizes)[0]
  env.reset(task)
  env.state_key()
  env.step(types.Action(text='no call at all', error='no call'))
  env.close()
import agentrl_jax.rewards
"""


def test_playing_every_environment_loads_no_jax():
  run_fresh(PLAY + LOADED.format(names='jax jaxlib flax grain orbax torch'))


@pytest.mark.parametrize('part', ['losses', 'advantages'])
def test_mathematics_loads_no_framework(part):
  names = 'flax transformers grain orbax tensorflow_datasets torch matplotlib'
  run_fresh(f'import agentrl_jax.{part}' + LOADED.format(names=names))


@pytest.mark.parametrize('part', ['losses', 'advantages'])
def test_mathematics_imports_within_a_second_beyond_jax(part):
  seconds = run_fresh(
    'import time, jax, jax.numpy, chex\n'
    'start = time.process_time()\n'
    f'import agentrl_jax.{part}\n'
    'print(time.process_time() - start)'
  )
  assert float(seconds) < 1.0


@pytest.mark.parametrize('part', ['text', 'types', 'config', 'tables'])
def test_words_and_text_load_no_jax(part):
  run_fresh(f'import agentrl_jax.{part}' + LOADED.format(names='jax torch'))
