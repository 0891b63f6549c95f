"""Three legs, a window of two turns, all codes asked for at the end.

Claim: with a `note` tool the policy keeps what its window loses; without it
(the sweep's other arm) the first code is out of sight and the answer a guess.
Command: python experiments/launch.py --config=configs/trips_notes.py
Hardware: two CPU cores.
Reached: test success <!-- number: trips_notes.test_success .1% -->87.2%<!-- /number -->
with notes, <!-- number: trips_no_notes.test_success .1% -->0.0%<!-- /number -->
without.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns trips that outlast the window."""
  config = config_lib.load_sibling(__file__, 'trips.py')
  config.env.options = {
    'kinds': ('book',),
    'legs': 3,
    'moving': 0.0,
    'notes': True,
  }
  config.rollout.memory = 'window'
  config.rollout.window = 2
  config.rollout.max_context = 192
  config.rollout.max_turns = 20
  config.sft.steps = 480
  return config


def sweep():
  """Yields the arm with notes and the one without."""
  for notes in (True, False):
    yield {'env.options.notes': notes}
