"""What is an environment, and what do all environments with tools share?

An environment is single-use: make it, reset it once, step it until `done`,
close it. Nothing that an agent can write makes `step` raise; only acting after
the end does, because that is a fault of the loop.
"""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from agentrl_jax import types
from agentrl_jax.text import tools

MAX_CALLS = 8  # parallel calls answered in one turn
_SHOWN = 60  # characters of the agent's own text quoted back in an error


@runtime_checkable
class Env(Protocol):
  """One episode of one task.

  `tools` are JSON schemas in the OpenAI function style, `system` is the system
  prompt ('' for none). `reset` returns the user's message; the loop puts the
  system prompt in front.
  """

  tools: Sequence[Mapping[str, Any]]
  system: str

  def reset(self, task: types.Task, *, sample: int = 0) -> types.Observation:
    """Starts the episode; `sample` tells members of a group apart."""
    ...

  def step(self, action: types.Action) -> types.StepResult:
    """Executes one turn. `info['valid']`: well-formed, known calls only."""
    ...

  def state_key(self) -> str | None:
    """Canonical text of the state in which the next action is taken."""
    ...

  def close(self) -> None:
    """Frees everything; may be called twice."""
    ...


@dataclasses.dataclass(frozen=True)
class Card:
  """What an environment says of itself, for docs/environments.md."""

  observation: str
  action: str
  reward: str
  termination: str
  oracle: str
  state_key: str
  licence: str = 'ours, Apache-2.0'


def function(
  name: str,
  description: str,
  *,
  required: Sequence[str] = (),
  **properties: Mapping[str, Any],
) -> dict[str, Any]:
  """Writes a tool as a JSON schema in the OpenAI function style."""
  return {
    'type': 'function',
    'function': {
      'name': name,
      'description': description,
      'parameters': {
        'type': 'object',
        'properties': dict(properties),
        'required': list(required),
        'additionalProperties': False,
      },
    },
  }


def clip(text: Any, limit: int = _SHOWN) -> str:
  """Shortens what the agent wrote, so that observations stay bounded."""
  text = str(text)
  return text if len(text) <= limit else text[: limit - 3] + '...'


class ToolError(Exception):
  """A call that is well-formed but cannot be done; its text is the reply."""


class ToolEnv:
  """Everything that environments with tools share.

  A subclass gives `tools`, `system`, `_start(task, sample) -> prompt`, one
  method `call_NAME(arguments) -> reply` for each tool, sets `self._done` when
  the world has ended, and judges in `_judge(text) -> reward`. A turn without
  calls is a final answer: it ends the episode.

  `task_defaults`, `generate` and `oracle` let `tasks` and `contract` treat all
  environments alike; `revealing` names tools that may show hidden facts.
  """

  tools: Sequence[Mapping[str, Any]] = ()
  system = ''
  max_observation_chars = 3000
  revealing: Sequence[str] = ()
  markov_keys = False
  card: Card | None = None
  task_defaults: Mapping[str, Any] = {}

  def __init__(self):
    self._done = False
    self._started = False
    self._last = ''
    self._schemas = _schemas(self.tools)

  def reset(self, task: types.Task, *, sample: int = 0) -> types.Observation:
    """Starts the only episode of this environment."""
    if self._started:
      raise RuntimeError('an environment is single-use: make another')
    self._started = True
    prompt = self._start(task, sample)
    return types.Observation((types.Message('user', prompt),))

  def step(self, action: types.Action) -> types.StepResult:
    """Executes one turn: calls in order, or a final answer, or an error."""
    if not self._started or self._done:
      raise RuntimeError('step needs a reset before, and no end before')
    replies, info = [], {'valid': True, 'ok': True, 'error': ''}
    if action.error:
      replies.append('error: ' + clip(action.error, 200))
      info.update(valid=False, ok=False, error='malformed')
    elif not action.calls:
      replies += self._hear(action.text)
    calls = () if action.error else action.calls
    for call in calls[:MAX_CALLS]:
      reply, error = self._answer(call)
      replies.append(reply)
      if error:
        info.update(ok=False, error=error)
        info['valid'] = info['valid'] and error in ('refused', 'over')
    if len(calls) > MAX_CALLS:
      replies.append(f'error: at most {MAX_CALLS} calls a turn')
      info.update(valid=False, ok=False, error='too_many_calls')
    self._last = '\n'.join(replies)
    reward, stop = 0.0, None
    if self._done:
      reward, stop = float(self._judge(action.text)), types.StopReason.DONE
      info['success'] = reward > 0
    role = 'tool' if action.calls or action.error else 'user'
    messages = tuple(types.Message(role, reply) for reply in replies)
    return types.StepResult(
      types.Observation(messages), reward, self._done, stop, info
    )

  def state_key(self) -> str | None:
    """The last observation; a subclass adds what else the agent knows."""
    return self._last

  def close(self) -> None:
    """Ends the episode; a subclass frees what it holds."""
    self._done = True

  @classmethod
  def oracle_value(cls, task: types.Task) -> float:
    """Expected reward of the oracle: 1 but where chance decides."""
    del task
    return 1.0

  @staticmethod
  def level(data: Mapping[str, Any]) -> int:
    """How hard a task is, from 1 on: what a curriculum draws by."""
    return data.get('level', 1)

  @classmethod
  def hidden_sibling(cls, task: types.Task) -> types.Task | None:
    """A task that differs in hidden state only, None if nothing is hidden."""
    del task

  def _hear(self, text: str) -> Sequence[str]:
    """Takes a turn without calls: the final answer, unless a user replies."""
    del text
    self._done = True
    return ()

  def _answer(self, call: types.ToolCall) -> tuple[str, str]:
    """Executes one call; returns the reply and the kind of error, if any."""
    if self._done:
      return 'error: the episode is over', 'over'
    problem = tools.validate_call(call, self._schemas)
    if call.name not in self._schemas:
      return f'error: {problem}', 'unknown_tool'
    if problem:
      return f'error: {call.name}: {problem}', 'bad_arguments'
    try:
      return getattr(self, 'call_' + call.name)(call.arguments), ''
    except ToolError as error:
      return str(error), 'refused'

  def _start(self, task: types.Task, sample: int) -> str:
    raise NotImplementedError

  def _judge(self, text: str) -> float:
    raise NotImplementedError


def _schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  return {
    tool['function']['name']: tool['function']['parameters'] for tool in tools
  }


def split_options(
  env_class: type, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Parts one dictionary of options into the environment's and the tasks'.

  Raises:
    ValueError: an option that neither knows.
  """
  parameters = inspect.signature(env_class).parameters
  known = getattr(env_class, 'task_defaults', {})
  unknown = [name for name in options if name not in {*parameters, *known}]
  if unknown:
    raise ValueError(
      f'{env_class.__name__} has no option {", ".join(unknown)}; '
      f'of the environment: {", ".join(parameters) or "none"}; '
      f'of its tasks: {", ".join(known) or "none"}'
    )
  return (
    {name: value for name, value in options.items() if name in parameters},
    {name: value for name, value in options.items() if name in known},
  )
