"""Can one policy learn several worlds at once? Each task says which it is of.

A mixed run is a run of this environment: `config.env.name='mix'`,
`config.env.options={'weights': {'flight': 1, 'sql': 2}}`. What is measured of
all tasks is measured of each world as well (`rollout/success_sql`).
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base

TASK_DEFAULTS = {
  'weights': {'frozen_lake': 1, 'sokoban': 1},  # how often each, by name, > 0
  'options': {},  # of each and of its tasks: {'frozen_lake': {'size': 5}}
}


def _class_of(name: str) -> type:
  from agentrl_jax import envs, tables  # they know this environment

  return tables.resolve(envs.ENVS, name)


def _check(weights: Mapping[str, float], options: Mapping[str, Any]) -> None:
  """Refuses what cannot be mixed.

  Raises:
    ValueError: says what is wrong and what is allowed.
  """
  if not weights or any(not weight > 0 for weight in weights.values()):
    raise ValueError(
      f'weights={dict(weights)}: give names with weights above 0'
    )
  if 'mix' in weights:
    raise ValueError('weights: a mix does not mix itself')
  strange = set(options) - set(weights)
  if strange:
    raise ValueError(
      f'options of {", ".join(sorted(strange))}, which weights do not name; '
      f'named: {", ".join(weights)}'
    )
  for name in weights:
    base.split_options(_class_of(name), options.get(name, {}))


def generate(
  seed: int,
  *,
  weights: Mapping[str, float] | None = None,
  options: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
  """Draws which world a task is of, and the task.

  Returns:
    `env`, the name of the world, and `data`, its task.
  """
  weights = TASK_DEFAULTS['weights'] if weights is None else weights
  options = options or {}
  _check(weights, options)
  draw = random.Random(seed)
  names = sorted(weights)  # the order in which they were given means nothing
  (name,) = draw.choices(names, [weights[each] for each in names])
  env_class = _class_of(name)
  given = base.split_options(env_class, options.get(name, {}))[1]
  data = env_class.generate(draw.getrandbits(62), **given)
  return {'env': name, 'data': data}


def inner(task: types.Task) -> types.Task:
  """The task as its own world knows it."""
  return dataclasses.replace(task, env=task.data['env'], data=task.data['data'])


class MixEnv:
  """Becomes the environment of its task when it is reset.

  Args:
    weights: of the tasks.
    options: of the environments and their tasks, by name.
  """

  tools = ()
  system = ''
  task_defaults = TASK_DEFAULTS
  generate = staticmethod(generate)
  disjoint_splits = True  # of small worlds
  rates: Mapping[str, Mapping[str, float]] = {}  # of each, by name
  card = base.Card(
    observation='that of the world of the task',
    action='that of the world of the task',
    reward='that of the world of the task',
    termination='that of the world of the task',
    oracle='that of the world of the task',
    state_key='that of the world of the task',
  )

  def __init__(
    self,
    *,
    weights: Mapping[str, float] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
  ):
    self._weights = weights or TASK_DEFAULTS['weights']
    self._options = options or {}
    _check(self._weights, self._options)
    self._name = ''
    self._env = None
    self._closed = False

  @property
  def wall_s(self) -> float:
    """The longest time that one of the worlds gives the commands of a turn."""
    return max(
      getattr(self._make(name), 'wall_s', 0.0) for name in self._weights
    )

  def reset(self, task: types.Task, *, sample: int = 0) -> types.Observation:
    """Makes the environment of the task and starts its episode."""
    if self._env is not None or self._closed:
      raise RuntimeError('an environment is single-use: make another')
    self._become(task.data['env'])
    return self._env.reset(inner(task), sample=sample)

  def step(self, action: types.Action) -> types.StepResult:
    """Executes one turn."""
    if self._env is None:
      raise RuntimeError('step needs a reset before, and no end before')
    return self._env.step(action)

  def state_key(self) -> str | None:
    """That of the world."""
    return self._env.state_key()

  def close(self) -> None:
    """Frees the world."""
    self._closed = True
    if self._env is not None:
      self._env.close()

  def snapshot(self) -> tuple[str, Any]:
    """The world's name and its own snapshot."""
    return self._name, self._env.snapshot()

  def restore(self, snapshot: tuple[str, Any]) -> None:
    """Continues from a snapshot, of this or of another instance."""
    self.close()
    name, kept = snapshot
    self._become(name)
    self._env.restore(kept)

  @staticmethod
  def level(data: Mapping[str, Any]) -> int:
    """That of the world, as it counts."""
    return _class_of(data['env']).level(data['data'])

  @classmethod
  def agent(
    cls,
    task: types.Task,
    *,
    seed: int,
    rates: Mapping[str, Mapping[str, float]],
  ) -> Any:
    """The world's scripted agent; `rates` are by name, and change its own."""
    name = task.data['env']
    env_class = _class_of(name)
    usual = getattr(env_class, 'rates', {})
    own = {**usual, **rates.get(name, {})}
    return env_class.agent(inner(task), seed=seed, rates=own)

  @classmethod
  def oracle(cls, task: types.Task) -> Any:
    """That of the world."""
    return _class_of(task.data['env']).oracle(inner(task))

  @classmethod
  def oracle_value(cls, task: types.Task) -> float:
    """That of the world."""
    return _class_of(task.data['env']).oracle_value(inner(task))

  @classmethod
  def demonstrate(
    cls,
    task: types.Task,
    *,
    seed: int,
    rates: Mapping[str, Mapping[str, float]] | None = None,
    weights: Mapping[str, float] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
  ) -> tuple[list[types.Message], float]:
    """Plays the world's scripted episode; `rates` are by name as well."""
    del weights
    name = task.data['env']
    env_class = _class_of(name)
    given = base.split_options(env_class, (options or {}).get(name, {}))[0]
    return env_class.demonstrate(
      inner(task), seed=seed, rates=(rates or {}).get(name), **given
    )

  @classmethod
  def task_tools(
    cls,
    task: types.Task,
    *,
    weights: Mapping[str, float] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
  ) -> Sequence[Mapping[str, Any]]:
    """The tools that the environment has when it is reset to a task."""
    env = cls(weights=weights, options=options)
    env._become(task.data['env'])
    env.close()
    return env.tools

  def _make(self, name: str) -> base.Env:
    env_class = _class_of(name)
    given = base.split_options(env_class, self._options.get(name, {}))[0]
    return env_class(**given)

  def _become(self, name: str) -> None:
    env_class = _class_of(name)
    self._name, self._env = name, self._make(name)
    self.tools, self.system = self._env.tools, self._env.system
    for known in ('max_observation_chars', 'markov_keys'):
      if hasattr(env_class, known):
        setattr(self, known, getattr(env_class, known))
