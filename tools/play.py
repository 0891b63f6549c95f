"""Plays an environment by hand, or measures its scripted agents.

python tools/play.py flight                                  # type the calls
python tools/play.py flight --agent=oracle --episodes=1000   # success rate
python tools/play.py sql --agent=all --episodes=1000         # the whole table

A call is typed as the policy writes it, or short: search from=Beijing to=Xian.
Anything that is no call is the final answer. Options of the environment and its
tasks follow as --option=legs=1.
"""

import argparse
import json
import random
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from agentrl_jax import envs, tables, types
from agentrl_jax.envs import base, contract, flight_agent, scripted, shell
from agentrl_jax.text import tools as calls


def main() -> int:
  """Parses the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('env', help='name in ENVS, or package.module:Name')
  parser.add_argument('--agent', default='', help='scripted agent, or all')
  parser.add_argument('--episodes', type=int, default=1000)
  parser.add_argument('--task', type=int, default=None, help='seed of the task')
  parser.add_argument('--option', action='append', default=[], metavar='K=V')
  args = parser.parse_args()
  options = dict(_option(text) for text in args.option)
  try:
    if args.agent:
      return measure(args.env, args.agent, args.episodes, options)
    seed = random.randrange(10**6) if args.task is None else args.task
    return play(args.env, seed, options)
  except ValueError as error:
    print(error, file=sys.stderr)
    return 2


def measure(name: str, agent: str, episodes: int, options: dict) -> int:
  """Prints success rates and speeds as one JSON object a line."""
  env_class = tables.resolve(envs.ENVS, name)
  env_options, task_options = base.split_options(env_class, options)
  known = agents(name, env_class)
  turns = getattr(env_class, 'demonstrated_turns', 30)
  if agent != 'all' and agent not in known:
    raise ValueError(f'unknown agent {agent!r}; known: {", ".join(known)}, all')
  for each in known if agent == 'all' else (agent,):
    total, watch = 0.0, Watch()
    for index in range(episodes):
      data = env_class.generate(index, **task_options)
      task = types.Task(name, 'play', index, data)
      env = watch.on(envs.make(name, **env_options))
      player = known[each](task)
      total += scripted.play(env, task, player, max_turns=turns)[1]
    row = {'agent': each, 'episodes': episodes}
    row['success'] = round(total / episodes, 4)
    row['steps_per_s'] = round(watch.steps / watch.seconds)
    print(json.dumps(row), flush=True)
  return 0


def agents(name: str, env_class: type) -> Mapping[str, Callable]:
  """Returns the agents of an environment: name -> f(task)."""
  if name == 'flight':
    return {
      each: lambda task, make=make: make(task.index)
      for each, make in flight_agent.AGENTS.items()
    }
  tools = getattr(env_class, 'task_tools', lambda task: env_class.tools)
  found = {'random': lambda task: Random(tools(task), task.index)}
  if hasattr(env_class, 'rates'):
    found['demonstrations'] = lambda task: env_class.agent(
      task, seed=task.index, rates=env_class.rates
    )
  if hasattr(env_class, 'oracle'):
    found['oracle'] = env_class.oracle
  return found


class Random:
  """Calls random tools with words that it has seen."""

  def __init__(self, tools: Any, seed: int):
    self._tools, self._seen = tools, ''
    self._draw = random.Random(f'random {seed}')

  def act(self, messages: Any) -> types.Action:
    """Any well-formed call."""
    self._seen += '\n'.join(message.content for message in messages)
    return contract.random_action(self._draw, self._tools, self._seen, ())


class Watch:
  """Counts the steps of environments and their CPU seconds.

  Those with a sandbox are measured on the clock.
  """

  def __init__(self):
    self.steps, self.seconds = 0, 1e-9

  def on(self, env: Any) -> Any:
    """Returns the environment, its `step` watched."""
    step = env.step
    apart = isinstance(env, shell.ShellEnv)  # works in other processes
    clock = time.perf_counter if apart else time.process_time

    def watched(action):
      start = clock()
      result = step(action)
      self.seconds += clock() - start
      self.steps += 1
      return result

    env.step = watched
    return env


def play(name: str, seed: int, options: dict) -> int:
  """Plays one episode with a human."""
  env_class = tables.resolve(envs.ENVS, name)
  env_options, task_options = base.split_options(env_class, options)
  data = env_class.generate(seed, **task_options)
  env = envs.make(name, **env_options)
  _show(env.reset(types.Task(name, 'play', seed, data)).messages)
  print('tools:', ', '.join(_signature(tool) for tool in env.tools) or 'none')
  done = False
  while not done:
    try:
      line = input('> ')
    except (EOFError, KeyboardInterrupt):
      break
    result = env.step(read(line, [t['function']['name'] for t in env.tools]))
    _show(result.observation.messages)
    done = result.done
    if done:
      print(f'reward {result.reward:g}')
  env.close()
  return 0


def read(line: str, names: list[str]) -> types.Action:
  """Reads a typed line: a call as the policy writes it, a short one, a text."""
  parsed = calls.parse(line)
  if parsed.calls or parsed.error:
    return types.Action(line, parsed.calls, parsed.error)
  try:
    words = shlex.split(line)
  except ValueError:  # an open quote
    words = line.split()
  if not words or words[0] not in names:
    return types.Action(line)
  pairs = [word.partition('=') for word in words[1:]]
  arguments = {key: value for key, _, value in pairs}
  return types.Action(line, (types.ToolCall(words[0], arguments),))


def _option(text: str) -> tuple[str, object]:
  key, _, value = text.partition('=')
  try:
    return key, json.loads(value)
  except ValueError:
    return key, value


def _signature(tool: dict) -> str:
  properties = tool['function']['parameters']['properties']
  return f'{tool["function"]["name"]}({", ".join(properties)})'


def _show(messages) -> None:
  for message in messages:
    print(message.content)


if __name__ == '__main__':
  sys.exit(main())
