"""How does an environment come by an oracle and by demonstrations?

It writes down once how its tasks are done, as a generator that yields actions
and is sent the replies. With all mistake rates at zero that is the oracle; with
others it shows the format of calls often and whole right episodes seldom.
"""

import copy
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base
from agentrl_jax.text import tools

Script = Generator[types.Action, str, None]


def call(name: str, **arguments: Any) -> types.Action:
  """Writes one call as the policy has to."""
  made = types.ToolCall(name, arguments)
  return types.Action(tools.render_call(made), (made,))


def broken(action: types.Action) -> types.Action:
  """The same call with its last brace missing, as the parser sees it."""
  text = action.text.replace('}</tool_call>', '</tool_call>')
  parsed = tools.parse(text)
  return types.Action(text, parsed.calls, parsed.error)


class Agent:
  """Plays one episode by a script; `act` takes new messages, gives an action.

  Args:
    script: `script(agent, prompt)` yields actions and is sent the replies; it
      asks `agent.errs(kind)` wherever that mistake could be made.
    seed: of the mistakes.
    rates: probability of each kind, each time it could be made; `malformed`
      breaks the JSON of a call, which is then told and repeated.
  """

  def __init__(
    self,
    script: Callable[['Agent', str], Script],
    *,
    seed: int,
    rates: Mapping[str, float],
  ):
    self.draw = random.Random(f'scripted {seed}')
    self.mistakes = []
    self._script = script
    self._rates = rates
    self._running = None
    self._repeat = None

  def errs(self, kind: str) -> bool:
    """Draws whether a mistake is made."""
    rate = self._rates.get(kind, 0.0)
    if rate and self.draw.random() < rate:
      self.mistakes.append(kind)
      return True
    return False

  def reseed(self, seed: Any) -> None:
    """Draws later mistakes anew; what was decided stays."""
    self.draw.seed(f'scripted {seed}')

  def act(self, messages: Sequence[types.Message]) -> types.Action:
    """Goes on with the script; ends the episode when the script has."""
    if self._repeat is not None:
      action, self._repeat = self._repeat, None
      return action
    text = '\n'.join(message.content for message in messages)
    try:
      if self._running is None:
        self._running = self._script(self, text)
        action = next(self._running)
      else:
        action = self._running.send(text)
    except StopIteration:
      return types.Action('done')
    if action.calls and self.errs('malformed'):
      self._repeat = action
      return broken(action)
    return action


def play(
  env: base.Env, task: types.Task, agent: Any, *, max_turns: int = 30
) -> tuple[list[types.Message], float]:
  """Plays an episode to its end and closes the environment.

  Args:
    env: fresh.
    task: one of its tasks.
    agent: something with `act(messages) -> Action`.
    max_turns: turns after which the episode is given up.

  Returns:
    All messages, system prompt first if there is one, and the reward.
  """
  try:
    new = env.reset(task).messages
    first = [types.Message('system', env.system)] if env.system else []
    messages, reward = [*first, *new], 0.0
    for _ in range(max_turns):
      action = agent.act(new)
      messages.append(types.Message('assistant', action.text, action.calls))
      result = env.step(action)
      new, reward = result.observation.messages, result.reward
      messages += new
      if result.done:
        break
  finally:
    env.close()
  return messages, reward


class ScriptedEnv(base.ToolEnv):
  """An environment with tools that says how its tasks are done.

  A subclass gives `script(task, agent, prompt)`, a static generator function,
  and `rates`, its kinds of mistakes with their probability in demonstrations,
  which are given up after `demonstrated_turns`. What it holds beside plain
  values (`held`: names of attributes) stays out of snapshots and is made anew
  by `_acquire`.
  """

  rates: Mapping[str, float] = {}
  held: Sequence[str] = ()
  demonstrated_turns = 30

  @classmethod
  def agent(
    cls, task: types.Task, *, seed: int, rates: Mapping[str, float]
  ) -> Agent:
    """The scripted agent of a task, with these mistake rates."""

    def script(agent, prompt):
      return cls.script(task, agent, prompt)

    return Agent(script, seed=seed, rates=rates)

  @classmethod
  def oracle(cls, task: types.Task) -> Agent:
    """The scripted agent that makes no mistake."""
    return cls.agent(task, seed=task.index, rates={})

  @classmethod
  def demonstrate(
    cls,
    task: types.Task,
    *,
    seed: int,
    rates: Mapping[str, float] | None = None,
    **options: Any,
  ) -> tuple[list[types.Message], float]:
    """Plays a scripted episode; `rates` changes those of the class.

    Raises:
      ValueError: a kind of mistake that the script does not know.
    """
    unknown = set(rates or {}) - set(cls.rates)
    if unknown:
      raise ValueError(
        f'{cls.__name__} makes no mistake {", ".join(sorted(unknown))}; '
        f'known: {", ".join(cls.rates)}'
      )
    agent = cls.agent(task, seed=seed, rates={**cls.rates, **(rates or {})})
    turns = cls.demonstrated_turns
    return play(cls(**options), task, agent, max_turns=turns)

  def snapshot(self) -> dict[str, Any]:
    """Everything that the rest of the episode depends on."""
    shared = ('_schemas', *self.held)
    return copy.deepcopy(
      {name: it for name, it in vars(self).items() if name not in shared}
    )

  def restore(self, snapshot: Mapping[str, Any]) -> None:
    """Continues from a snapshot, of this or of another instance."""
    self.close()
    vars(self).update(copy.deepcopy(snapshot))
    self._acquire()

  @staticmethod
  def script(task: types.Task, agent: Agent, prompt: str) -> Script:
    """Yields the actions that do a task."""
    raise NotImplementedError

  def _acquire(self) -> None:
    """Opens what `held` names, from the plain values."""
