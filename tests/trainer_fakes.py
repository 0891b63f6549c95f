"""A trainer whose collector makes its trajectories up."""

import pathlib

import jax
import numpy as np
from loading import load

from agentrl_jax import assembly, display, metrics, runtime, train, types
from agentrl_jax import config as config_lib
from agentrl_jax.models import params as params_lib
from agentrl_jax.rollout import busy, loop
from agentrl_jax.sampler.engine import Counters

ROOT = pathlib.Path(__file__).parents[1]
StopReason = types.StopReason


made = load(ROOT / 'tests' / 'rollout' / 'rollout_fakes.py')


class Engine:
  """Takes weights; samples nothing."""

  num_slots = 4

  def __init__(self):
    self.published = []

  def publish(self, params, version):
    leaf = jax.tree.leaves(params)[0]
    self.published.append((version, np.asarray(leaf).copy()))
    return True

  def reset_counters(self):
    return Counters()


class Collector:
  """Gives each member the reward and stop reason that functions say."""

  def __init__(self, reward, reason=lambda e, d: StopReason.DONE):
    self.engine, self.busy = Engine(), busy.Busy()
    self.calls = []
    self.interrupt_at = -1
    self._reward, self._reason = reward, reason

  def collect(self, entries, draws, on_finish=None, on_state=None):
    self.calls.append((draws.purpose, draws.iteration, list(entries)))
    if len(self.calls) == self.interrupt_at:
      raise loop.Interrupted
    played = [
      made.append_only(
        [2 + e.sample % 3],
        reward=self._reward(e, draws),
        stop_reason=self._reason(e, draws),
        task=e.task,
        sample=e.sample,
      )
      for e in entries
    ]
    for trajectory in played:
      if on_finish is not None:
        on_finish(trajectory)
    return played


# A learned value of states, as in configs/ppo.py.
PPO = {'advantage.estimator': 'gae', 'train.constant_groups': 'keep'}


def some(entry, _):
  """Even tasks: half of the group succeeds. Odd ones: all of it."""
  return float(entry.task.index % 2 or entry.sample % 2)


def trainer(tmp_path, reward=some, reason=lambda e, d: StopReason.DONE, **sets):
  path = ROOT / 'tests' / 'experiments' / 'tiny_config.py'
  fields = {
    'rollout.tasks': '4',
    'rewards': "(('outcome', 1.0),)",
    'train.row_length': '256',
    'log.tensorboard': 'false',
    'doctor.strict': 'none',  # it would see that they are made up
  }
  config = config_lib.load(str(path), {**fields, **sets})
  mesh = assembly.mesh(config)
  model = assembly.model_config(config, 300)
  collector = Collector(reward, reason)
  parts = train.Parts(
    config,
    made.language(),
    model,
    mesh,
    collector,
    display.Display('quiet'),
    runtime.Stop(),
  )
  params = params_lib.init(model, jax.random.key(0))
  return train.Trainer(parts, str(tmp_path), params, 0.0), collector


def plain_rows(path):
  return [
    repr(
      {
        k: v
        for k, v in row.items()
        # The first iteration of each process is examined.
        if not k.startswith(('wall_s', 'time/', 'host/', 'doctor/'))
        and not k.endswith('_per_s')
      }
    )
    for row in metrics.read(path)
  ]
