"""A policy of experts: eight of them, two a token, with replayed routes.

Claim: fine-tuning, sampling, RL and export work for a mixture of experts as for
any policy; what a token costs is what the dense smoke run's token costs. With
`--config.sampler.router_replay=false` the learner chooses experts itself, and
`policy/first_ratio_deviation` shows what that costs in bfloat16.
Command: python experiments/launch.py --config=configs/moe.py
Hardware: two CPU cores.
Reached: all stages, in
<!-- number: moe.wall_s .0f -->208<!-- /number --> s; validation before RL
<!-- number: moe.eval_success_start .1% -->0.0%<!-- /number -->, test success
<!-- number: moe.test_success .1% -->6.2%<!-- /number -->, largest |ratio - 1| before an update
<!-- number: moe.policy_first_ratio_deviation .1e -->3.8e-06<!-- /number -->.
"""  # noqa: E501 (markers stand on one line)

from agentrl_jax import config as config_lib


def get_config():
  """Returns the smoke run with experts of half its width, two of them used."""
  config = config_lib.load_sibling(__file__, 'smoke.py')
  config.model.num_experts = 8
  config.model.experts_per_token = 2
  config.model.d_expert = config.model.d_ff // 2
  config.model.balance_coef = 0.01
  return config
