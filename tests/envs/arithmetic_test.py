"""The single-turn environment: one answer, judged by its last number."""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import arithmetic


def answer(text, left=17, operator='+', right=25):
  data = {'left': left, 'operator': operator, 'right': right}
  env = arithmetic.ArithmeticEnv()
  first = env.reset(types.Task('arithmetic', 'test', 0, data))
  assert first.messages[0].content == f'{left}{operator}{right}=?'
  result = env.step(types.Action(text))
  assert result.done
  return result.reward


@pytest.mark.parametrize(
  'text, reward',
  [
    ('42', 1.0),
    ('17 plus 25 is 42.', 1.0),
    ('042', 1.0),
    ('43', 0.0),
    ('-42', 0.0),
    ('42 or 43', 0.0),
    ('', 0.0),
    ('no idea', 0.0),
    ('9' * 10000, 0.0),
  ],
)
def test_the_last_number_counts(text, reward):
  assert answer(text) == reward


def test_operators():
  assert answer('-8', 17, '-', 25) == 1.0
  assert answer('425', 17, '*', 25) == 1.0


def test_generated_questions_stay_in_range():
  for seed in range(300):
    data = arithmetic.generate(seed, low=3, high=9, operators='-')
    assert 3 <= data['right'] <= data['left'] <= 9


@pytest.mark.parametrize(
  'options', [{'low': 5, 'high': 4}, {'operators': '/'}, {'operators': ''}]
)
def test_impossible_options_are_errors(options):
  with pytest.raises(ValueError, match='above|give any'):
    arithmetic.generate(0, **options)
