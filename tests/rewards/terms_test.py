"""Terms on the form of an episode, by hand."""

import pytest
import reward_fakes as made

from agentrl_jax.rewards import terms


def test_an_invalid_turn_costs_one():
  episode = made.trajectory(0, made.turn(valid=False), 1)
  assert terms.invalid(episode) == [0.0, -1.0, 0.0]


def test_the_layout_is_a_mean_over_turns():
  good = made.turn(text='<think>two\nlines</think>\n{"name": "a"}')
  bad = [made.turn(text=t) for t in ('no', '<think>x</think>', 'a <think>')]
  assert terms.layout(made.trajectory(good, *bad)) == [0.25, 0, 0, 0]
  assert sum(terms.layout(made.trajectory(good, good, good))) == (
    pytest.approx(1.0)
  )
  assert terms.layout(made.trajectory(bad[0]), pattern='n.') == [1.0]
  assert terms.layout(made.trajectory(bad[0]), pattern='n') == [0.0]
  with pytest.raises(ValueError, match='pattern='):
    terms.layout(made.trajectory(bad[0]), pattern='(')


@pytest.mark.parametrize(
  'tokens, want',
  [(0, 0.0), (60, 0.0), (70, -0.25), (90, -0.75), (100, -1.0), (500, -1.0)],
)
def test_length_is_free_then_linear_then_full(tokens, want):
  """Budget 100, buffer 40: free up to 60, 70 is 10/40 over."""
  episode = made.trajectory(made.turn(tokens=tokens), made.turn())
  found = terms.length(episode, budget=100, buffer=40)
  assert found == pytest.approx([0.0, want])


@pytest.mark.parametrize('buffer', [0, -1, 101])
def test_impossible_lengths(buffer):
  with pytest.raises(ValueError, match='0 < buffer <= budget'):
    terms.length(made.trajectory(), budget=100, buffer=buffer)


def test_turns_cost_one_after_the_free_ones():
  episode = made.trajectory(0, 0, 0)
  assert terms.turns(episode) == [-1, -1, -1]
  assert terms.turns(episode, free=2) == [0, 0, -1]
  with pytest.raises(ValueError, match='free=-1'):
    terms.turns(episode, free=-1)
