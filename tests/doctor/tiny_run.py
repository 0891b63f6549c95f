"""The real trainer, sampler and learner on a toy world, to plant faults in.

A policy of one layer that was never trained ends its turns all the same: its
weights favour the end token. Nothing is downloaded, no data set is made.
"""

import pathlib

import jax
from loading import load

from agentrl_jax import assembly, display, runtime, train, types
from agentrl_jax import config as config_lib
from agentrl_jax.models import params as params_lib
from agentrl_jax.rollout import loop
from agentrl_jax.text import templates

ROOT = pathlib.Path(__file__).parents[2]
TINY = ROOT / 'tests' / 'experiments' / 'tiny_config.py'
FIELDS = {
  **config_lib.load_module(str(TINY)).UNTRAINED,
  # On both sides of the ratio, or it is not 1.
  'rollout.temperature': '0.7',
  'rollout.top_p': '0.9',
  'train.optimizer.learning_rate': '0.01',
  'train.optimizer.warmup': '0',
  'train.optimizer.schedule': 'constant',
  'doctor.every': '1',
}


made = load(ROOT / 'tests' / 'rollout' / 'rollout_fakes.py')


class Display(display.Display):
  """Quiet; keeps the warnings."""

  def __init__(self):
    super().__init__('quiet')
    self.warnings = []

  def warn(self, text):
    self.warnings.append(text)


def tasks(config, split):
  del config
  # One, two or three turns.
  return [types.Task('echo', split, i, {'turns': 1 + i % 3}) for i in range(9)]


def config(**sets):
  return config_lib.load(str(TINY), {**FIELDS, **sets})


def model(config):
  size = made.language().tokenizer.vocab_size
  return assembly.model_config(config, size)


def engine(config):
  """The sampler, traced anew with whatever was planted in it."""
  return assembly.engine(
    config, model(config), made.language(), assembly.mesh(config)
  )


def weights(config):
  params = params_lib.init(model(config), jax.random.key(0))
  end = templates.stop_ids(made.language().tokenizer, 'tiny')[0]
  # Channel 0 is a constant that only the end token listens to.
  table = params['embed']['table'].at[:, 0].set(4.0)
  head = params['head'].at[0].set(0.0).at[0, end].set(0.9)
  return {**params, 'embed': {'table': table}, 'head': head}


def trainer(workdir, sampler=None, **sets):
  """Returns a trainer that has not run."""
  c = config(**sets)
  shape = model(c)
  collector = loop.Collector(
    sampler or engine(c),
    made.EchoEnv,
    made.language(),
    assembly.limits(c),
  )
  parts = train.Parts(
    c,
    made.language(),
    shape,
    assembly.mesh(c),
    collector,
    Display(),
    runtime.Stop(),
  )
  return train.Trainer(parts, str(workdir), weights(c), 0.0)
