"""Does an environment keep its promises? An executable contract.

A new environment's test calls `check_env(name)`; the first broken clause is
raised with what was seen.
"""

import contextlib
import dataclasses
import functools
import gc
import os
import pathlib
import random
import re
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from agentrl_jax import envs, tables, types
from agentrl_jax.envs import base


class ContractError(AssertionError):
  """A clause of the contract is broken."""


@dataclasses.dataclass(frozen=True)
class _Step:
  """What can be seen of one step, and the key of the state it led to."""

  texts: tuple[str, ...]
  reward: float
  done: bool
  valid: bool
  key: str | None


_JUNK = (None, [], {}, -1, 1e400, True, '', 'x' * 5000, '\x00', '\ud800', '%s')


def malformed(tools: Sequence[Any]) -> list[types.Action]:
  """Actions that no environment may choke on."""
  call = types.ToolCall
  actions = [
    types.Action('<tool_call>{"name":', (), 'not valid JSON'),
    types.Action('x' * 10000, (), 'y' * 10000),
    types.Action('', (call('no_such_tool', {'a': 1}),)),
    types.Action('', (call('', {}),)),
    types.Action('', (call('x' * 5000, {'y' * 5000: 1}),)),
    types.Action('', (call('a', {}),) * 50),
  ]
  for tool in tools:
    schema = tool['function']
    names = list(schema['parameters'].get('properties', {}))
    actions.append(types.Action('', (call(schema['name'], {'zzz': 1}),)))
    actions.append(types.Action('', (call(schema['name'], None),)))
    for junk in _JUNK:
      arguments = dict.fromkeys(names, junk)
      actions.append(types.Action('', (call(schema['name'], arguments),)))
  return actions


def random_action(
  draw: random.Random, tools: Sequence[Any], seen: str, avoid: Sequence[str]
) -> types.Action:
  """A well-formed call with values taken from what was seen."""
  usable = [t['function'] for t in tools if t['function']['name'] not in avoid]
  if not usable:
    return types.Action(draw.choice(('no idea', '42', '')))
  tool = draw.choice(usable)
  words = re.findall(r'[\w:]+', seen) or ['x']
  arguments = {}
  for name, schema in tool['parameters'].get('properties', {}).items():
    required = name in tool['parameters'].get('required', ())
    if required or draw.random() < 0.6:
      kind = schema.get('type', 'string')
      value = draw.choice(schema.get('enum') or words)
      values = {'integer': 1, 'number': 0.5, 'boolean': True}
      values |= {'array': [], 'object': {}}
      arguments[name] = values.get(kind, value)
  return types.Action('', (types.ToolCall(tool['name'], arguments),))


def check_env(
  name: str, *, num_tasks: int = 3, turns: int = 15, seed: int = 0, **options
) -> None:
  """Checks every clause on a few tasks.

  Args:
    name: a key of `ENVS` or `'package.module:Name'`.
    num_tasks: tasks to play.
    turns: at most, of each random episode.
    seed: of tasks and actions.
    **options: of the environment and its tasks.

  Raises:
    ContractError: the first clause that is broken.
  """
  env_class = tables.resolve(envs.ENVS, name)
  env_options, task_options = base.split_options(env_class, options)

  def make() -> base.Env:
    return envs.make(name, **env_options)

  for index in range(num_tasks):
    data = env_class.generate(seed + index, **task_options)
    task = types.Task(name, 'contract', index, data)
    draw = random.Random(seed + index)
    _malformed_actions(make, task)
    _hidden_state(make, env_class, task, draw, turns)
    actions = _explore(make, task, draw, turns)
    _markov(make, task, draw, turns)
    _repeatable(make, task, actions)
    _snapshots(make, task, actions)
    _closing(make, task)
    if hasattr(env_class, 'oracle'):
      _oracle(make, env_class, task)


def _require(condition: bool, clause: str, seen: Any = '') -> None:
  if not condition:
    raise ContractError(f'{clause}{f": {seen!r}" if seen != "" else ""}')


def _texts(env: base.Env, observation: types.Observation) -> tuple[str, ...]:
  """What an observation says, which must be text and bounded."""
  texts = tuple(message.content for message in observation.messages)
  limit = getattr(env, 'max_observation_chars', 100_000)
  _require(
    all(isinstance(text, str) for text in texts), 'observations are str', texts
  )
  _require(
    sum(map(len, texts)) <= limit, f'observations are <= {limit} characters'
  )
  return texts


def _step(env: base.Env, action: types.Action) -> _Step:
  """Steps and checks the form of what comes back."""
  result = env.step(action)
  texts = _texts(env, result.observation)
  _require('valid' in result.info, "info carries 'valid'", result.info)
  _require(
    result.done == (result.stop_reason is not None),
    'done comes with a stop reason',
    result,
  )
  key = env.state_key()
  _require(key is None or isinstance(key, str), 'state_key is str', key)
  valid = result.info['valid']
  return _Step(texts, result.reward, result.done, valid, key)


def _play(env: base.Env, actions: Sequence[types.Action]) -> list[_Step]:
  steps = []
  for action in actions:
    steps.append(_step(env, action))
    if steps[-1].done:
      break
  return steps


def _explore(make, task, draw, turns) -> list[types.Action]:
  """A random episode; checks that equal keys mean equal observations."""
  env, actions, last_of = make(), [], {}
  seen = _texts(env, env.reset(task))[-1]
  for _ in range(turns):
    action = random_action(draw, env.tools, seen, ())
    actions.append(action)
    step = _step(env, action)
    last = '\n'.join(step.texts)
    if step.key is not None:
      _require(
        last_of.setdefault(step.key, last) == last,
        'equal state keys had equal last observations',
        step.key,
      )
    seen += '\n' + last
    if step.done:
      break
  env.close()
  return actions


def _markov(make, task, draw, turns) -> None:
  """Two ways to one state key, if found: the same actions go on the same."""
  ways = {}  # key -> actions that led there, of the latest episode
  for _ in range(4):
    env, actions = make(), []
    seen = env.reset(task).messages[-1].content
    if not getattr(env, 'markov_keys', False):
      return
    for _ in range(turns):
      action = random_action(draw, env.tools, seen, ())
      actions.append(action)
      step = _step(env, action)
      seen = '\n'.join(step.texts)
      if step.done:
        break
      other = ways.get(step.key)
      if other is not None and other != actions:
        future = [random_action(draw, env.tools, seen, ()) for _ in range(4)]
        futures = [_future(make, task, way, future) for way in (other, actions)]
        _require(
          futures[0] == futures[1],
          'equal Markov keys have equal futures',
          step.key,
        )
      ways[step.key] = list(actions)
    env.close()


def _future(make, task, way, future) -> list[_Step]:
  env = make()
  env.reset(task)
  _play(env, way)
  steps = _play(env, future)
  env.close()
  return steps


def _repeatable(make, task, actions) -> None:
  runs = []
  for _ in range(2):
    env = make()
    first = env.reset(task), env.state_key()
    runs.append((first, _play(env, actions)))
    if runs[-1][1][-1].done:
      _raises(lambda env=env: env.step(actions[0]), 'step after done raises')
    env.close()
  _require(runs[0] == runs[1], 'same task and actions, same observations')


def _raises(function, clause: str) -> None:
  try:
    function()
  except RuntimeError:
    return
  raise ContractError(f'{clause} RuntimeError')


def _malformed_actions(make, task) -> None:
  env = make()
  env.reset(task)
  for action in malformed(env.tools):
    try:
      step = _step(env, action)
    except ContractError:
      raise
    except Exception as error:
      raise ContractError(f'malformed actions never raise: {action}') from error
    _require(
      step.valid or any(step.texts), 'a malformed action is told what is wrong'
    )
    if step.done:  # a call that some tool takes may end the episode
      env.close()
      env = make()
      env.reset(task)
  env.close()


def _hidden_state(make, env_class, task, draw, turns) -> None:
  """Two tasks that differ in hidden state look alike until a tool reveals."""
  find = getattr(env_class, 'hidden_sibling', None)
  sibling = find(task) if find else None
  if sibling is None:
    return
  _require(sibling.data != task.data, 'hidden_sibling differs from its task')
  pair = make(), make()
  first, second = (env.reset(t) for env, t in zip(pair, (task, sibling)))
  _require(first == second, 'hidden state does not show at reset', first)
  seen = first.messages[-1].content
  for _ in range(turns):
    avoid = getattr(env_class, 'revealing', ())
    action = random_action(draw, pair[0].tools, seen, avoid)
    steps = [_step(env, action) for env in pair]
    _require(
      steps[0] == steps[1],
      'hidden state does not show until a tool reveals it',
      (action.calls, [dataclasses.astuple(step) for step in steps]),
    )
    seen += '\n' + '\n'.join(steps[0].texts)
    if steps[0].done:
      break
  for env in pair:
    env.close()


def _snapshots(make, task, actions) -> None:
  env = make()
  if not (hasattr(env, 'snapshot') and hasattr(env, 'restore')):
    return
  env.reset(task)
  middle = len(actions) // 2
  _play(env, actions[:middle])
  snapshot, key = env.snapshot(), env.state_key()
  expected = _play(env, actions[middle:])
  other = make()
  for candidate in (env, other):
    candidate.restore(snapshot)
    clause = 'restore continues identically'
    _require(candidate.state_key() == key, clause, key)
    _require(_play(candidate, actions[middle:]) == expected, clause, expected)
    candidate.close()


def _held() -> dict[str, set]:
  """What this process holds and an environment must give back."""
  held = {'threads': set(threading.enumerate())}
  system = pathlib.Path('/proc/self')
  if system.is_dir():  # elsewhere only threads are counted
    files, children = set(), set()
    for number in os.listdir(system / 'fd'):
      with contextlib.suppress(OSError):  # the listing's own is gone
        files.add((number, os.readlink(system / 'fd' / number)))
    for thread in (system / 'task').glob('*/children'):
      children |= set(thread.read_text().split())
    held |= {'files or sockets': files, 'processes': children}
  return held


def _closing(make, task) -> None:
  before = _held()
  env = make()
  env.reset(task)
  env.close()
  env.close()
  step = functools.partial(env.step, types.Action('late'))
  _raises(step, 'step after close raises')
  del step
  after = _held()
  for what, held in after.items():
    left = held - before[what]
    _require(not left, f'close leaves no {what}', left)
  gone = weakref.ref(env)
  del env
  gc.collect()
  _require(gone() is None, 'close leaves nothing that holds the environment')


def _oracle(make, env_class, task) -> None:
  env, agent = make(), env_class.oracle(task)
  new, reward, done = env.reset(task).messages, 0.0, False
  for _ in range(100):
    result = env.step(agent.act(new))
    new, reward, done = result.observation.messages, result.reward, result.done
    if done:
      break
  env.close()
  if getattr(env_class, 'oracle_value', lambda task: 1.0)(task) == 1.0:
    _require(done and reward == 1.0, 'the oracle earns 1', (task.name, reward))
