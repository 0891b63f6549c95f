"""From a config to parts: names, options, what is refused, what is counted."""

import math

import pytest
import reward_fakes as made

from agentrl_jax import rewards


def score(group, config):
  return rewards.score(group, *rewards.compose(config)).trajectories


def test_names_options_and_weights():
  # Tokens 3 + 4 = 7 of a budget of 8, 4 of them a buffer: (7 - 4) / 4 = 0.75.
  one = made.trajectory(made.turn(tokens=3), made.turn(1, tokens=4))
  (scored,) = score(
    made.group(one),
    [('outcome', 1), ['length', 0.1, {'budget': 8, 'buffer': 4}]],
  )
  assert scored.rewards['length'] == (0.0, -0.75)
  assert scored.rewards['total'] == pytest.approx((0.0, 1 - 0.075))


def test_a_part_may_compare_the_group():
  pair = made.group(made.trajectory(0, 1), made.trajectory(0.5))
  best, other = score(pair, [('reward_fakes:rank', 2.0, {'top': 3.0})])
  assert best.rewards['total'] == (0.0, 6.0)
  assert other.rewards['total'] == (0.0,)


def test_a_class_is_made_once_and_its_counts_are_taken():
  composed, weights = rewards.compose(
    [('reward_fakes:Counting', 1, {'value': 2})]
  )
  for _ in range(3):
    rewards.score(made.group(made.trajectory(0, 0)), composed, weights)
  assert rewards.measures(composed) == {'judge/calls': 3.0}
  assert rewards.measures(composed) == {'judge/calls': 0.0}
  assert rewards.measures({'outcome': rewards.REWARDS['outcome']}) == {}


@pytest.mark.parametrize(
  'entry, said',
  [
    (('outcom', 1.0), 'known: .*outcome.*nearest'),
    (('no_such_module_here:f', 1.0), 'cannot import'),
    (('length', 1.0, {'budget': 9}), "missing a required argument: 'buffer'"),
    (('length', 1.0, {'budget': 9, 'buffer': 10}), 'buffer=10: give 0 <'),
    (('outcome', 1.0, {'scale': 2}), "unexpected keyword argument 'scale'"),
    (
      ('shaping', 1.0, {'potential': 'hill', 'gamma': 1}),
      "unknown name 'hill'",
    ),
    (('process', 1.0, {'rule': 'fligt'}), "nearest: 'flight'"),
    (('reward_fakes:Counting', 1.0, {'value': -1}), 'value=-1: give 0 or more'),
    (('reward_fakes:Counting', 1.0), 'missing 1 required'),
  ],
)
def test_what_is_refused_before_anything_runs(entry, said):
  with pytest.raises(ValueError, match=said):
    rewards.compose([entry])
  (fault,) = rewards.faults([('invalid', 1.0), entry])
  assert entry[0].split(':')[0] in fault


def test_each_part_once():
  with pytest.raises(ValueError, match='once'):
    rewards.compose([('outcome', 1.0), ('outcome', 0.5)])
  assert 'once' in rewards.faults([('outcome', 1.0), ('outcome', 0.5)])[0]
  assert math.isclose(rewards.compose([('outcome', 1)])[1]['outcome'], 1.0)
