"""What does TRL's own trainer give for one small batch?

  python tests/losses/trl_reference.py    # writes tests/golden/trl.json

needs trl and torch, in an environment of their own if need be; the tests of the
stored numbers need neither. TRL's `GRPOTrainer._compute_loss` is called on a
trainer without a model: its log-probabilities are the tensors given here.
"""

import collections
import json
import pathlib
import types

import numpy as np

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'trl.json'
WIDTH = 8  # TRL's max_completion_length

# name -> the trainer's settings where they differ from `defaults`
CASES = {
  'grpo': dict(loss_type='grpo'),
  'grpo_on_policy': dict(loss_type='grpo', on_policy=True),
  'grpo_delta': dict(loss_type='grpo', delta=1.5),
  'grpo_kl': dict(loss_type='grpo', beta=0.2),
  'gspo': dict(
    loss_type='grpo', level='sequence', epsilon_low=0.03, epsilon_high=0.04
  ),
  'bnpo': dict(loss_type='bnpo'),
  'dapo': dict(loss_type='dapo'),
  'dr_grpo': dict(loss_type='dr_grpo'),
  'cispo': dict(loss_type='cispo', epsilon_high=1.28),
  'sapo': dict(loss_type='sapo'),
  'luspo': dict(
    loss_type='luspo', level='sequence', epsilon_low=0.03, epsilon_high=0.04
  ),
}


def defaults() -> dict:
  """Settings of a case."""
  return dict(
    level='token',
    epsilon_low=0.2,
    epsilon_high=0.28,
    delta=None,
    beta=0.0,
    on_policy=False,
  )


def batch() -> dict[str, np.ndarray]:
  """Six completions of up to seven tokens, holes where a tool answered.

  Log-probabilities far enough apart that every clip binds somewhere.
  """
  draws = np.random.default_rng(20)
  shape = (6, 7)
  old = -draws.random(shape) * 3
  new = old + 0.6 * draws.normal(size=shape)
  lengths = np.array([7, 3, 5, 1, 6, 7])
  completion = np.arange(7) < lengths[:, None]
  tool = np.ones(shape, bool)
  tool[0, 2:4] = tool[4, 1] = tool[5, 0] = False
  arrays = dict(
    logprobs=new,
    old_logprobs=old,
    reference_logprobs=new + 0.3 * draws.normal(size=shape),
    advantages=np.array([1.1, -0.7, 0.4, -1.3, 0.2, -0.5]),
  )
  arrays = {k: v.round(4).astype(np.float32) for k, v in arrays.items()}
  return arrays | dict(completion_mask=completion, tool_mask=tool)


def trl_loss(case: dict, arrays: dict[str, np.ndarray]) -> dict:
  """Returns {'loss', 'grad'} of TRL, the gradient by log-probability."""
  import torch
  from trl.trainer import grpo_trainer

  tensors = {k: torch.from_numpy(np.array(v)) for k, v in arrays.items()}
  logprobs = tensors['logprobs'].requires_grad_()
  mask = (tensors['completion_mask'] & tensors['tool_mask']).float()
  inputs = dict(
    prompt_ids=torch.zeros((6, 1), dtype=torch.long),
    prompt_mask=torch.ones((6, 1)),
    completion_ids=torch.zeros((6, 7), dtype=torch.long),
    completion_mask=tensors['completion_mask'].float(),
    tool_mask=tensors['tool_mask'].float(),
    advantages=tensors['advantages'],
    ref_per_token_logps=tensors['reference_logprobs'],
    num_items_in_batch=mask.sum(),
  )
  if not case['on_policy']:
    inputs['old_per_token_logps'] = tensors['old_logprobs']
  trainer = _trainer(case, logprobs)
  loss = grpo_trainer.GRPOTrainer._compute_loss(trainer, None, inputs)
  (grad,) = torch.autograd.grad(loss, logprobs)
  return {'loss': loss.item(), 'grad': grad.tolist()}


def _trainer(case: dict, logprobs) -> types.SimpleNamespace:
  """What `_compute_loss` reads of a trainer, in evaluation mode."""

  def same(x, **_):
    return x

  def score(*_, **__):
    return logprobs, logprobs.detach() * 0, None

  def measures():
    return collections.defaultdict(list)

  return types.SimpleNamespace(
    _get_per_token_logps_and_entropies=score,
    _metrics=collections.defaultdict(measures),
    _entropy_bonus_enabled=False,
    accelerator=types.SimpleNamespace(
      num_processes=1, reduce=same, gather=same, gather_for_metrics=same
    ),
    args=types.SimpleNamespace(
      delta=case['delta'],
      sapo_temperature_pos=1.0,
      sapo_temperature_neg=1.05,
      steps_per_generation=1,
      use_bias_correction_kl=False,
    ),
    aux_loss_enabled=False,
    beta=case['beta'],
    current_gradient_accumulation_steps=1,
    epsilon_high=case['epsilon_high'],
    epsilon_low=case['epsilon_low'],
    importance_sampling_level=case['level'],
    loss_type=case['loss_type'],
    max_completion_length=WIDTH,
    model=types.SimpleNamespace(training=False),
    off_policy_mask_threshold=None,
    top_entropy_quantile=1.0,
    use_vllm=False,
    vllm_importance_sampling_correction=False,
  )


def main() -> None:
  """Writes the numbers of the installed TRL."""
  import torch
  import trl

  arrays = batch()
  numbers = {
    name: trl_loss(defaults() | case, arrays) for name, case in CASES.items()
  }
  versions = {'trl': trl.__version__, 'torch': torch.__version__}
  text = {'versions': versions, 'width': WIDTH, 'expected': numbers}
  GOLDEN.write_text(json.dumps(text) + '\n', encoding='utf-8')


if __name__ == '__main__':
  main()
