"""docs/environments.md says of each environment what its card says."""

import pathlib
import re

import pytest

from agentrl_jax import envs

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / 'docs' / 'environments.md').read_text(encoding='utf-8')


def section(name):
  """The lines that docs/environments.md must hold, without numbers."""
  card = envs.ENVS[name].card
  fields = ('observation', 'action', 'reward', 'termination', 'oracle')
  fields += ('state_key', 'licence')
  lines = [
    f'- {field.replace("_", " ")}: {getattr(card, field)}' for field in fields
  ]
  return '\n'.join((f'### {name}', '', *lines)) + '\n'


@pytest.mark.parametrize('name', envs.ENVS)
def test_each_environment_has_its_section_and_its_row(name):
  assert section(name) in TEXT
  assert f'\n| {name} |' in TEXT


@pytest.mark.parametrize('name', envs.ENVS)
def test_a_card_says_everything_in_a_line_each(name):
  assert all(
    value and '\n' not in value for value in vars(envs.ENVS[name].card).values()
  )


def test_nothing_else_is_described():
  names = re.findall(r'^### (\w+)$', TEXT, re.MULTILINE)
  assert sorted(names) == sorted(envs.ENVS)
