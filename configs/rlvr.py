"""Single-turn RL with a verifiable reward: the agent's code with one turn.

Claim: `rollout.max_turns=1` is all that separates RL of agents from RL of
answers; a policy that has seen sums, half of them wrong, learns to add numbers
that it has not seen together.
Command: python experiments/launch.py --config=configs/rlvr.py
Hardware: two CPU cores.
Reached: test success <!-- number: rlvr.test_success .1% -->81.8%<!-- /number -->,
after fine-tuning <!-- number: rlvr.eval_success_start .1% -->46.9%<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the main job with one question, one answer."""
  config = config_lib.load_sibling(__file__, 'gigpo.py')
  config.env.name = 'arithmetic'
  config.env.options = {'operators': '+'}
  config.text.vocab_size = 272  # digit by digit: sums are not learnt by heart
  config.sft.demonstrations = 20000
  config.rollout.tasks = 64
  config.rollout.max_turns = 1
  config.advantage.estimator = 'grpo'
  return config
