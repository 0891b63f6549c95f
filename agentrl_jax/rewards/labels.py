"""What was a step worth? The share of continuations from it that succeed.

From a snapshot after each turn the same policy plays on, several times with
fresh randomness of its own (Wang et al. 2024, Math-Shepherd, arXiv:2312.08935;
there from prefixes of text, here from states of a world). A world's own noise
continues as it would have: label worlds without any, or read the values as
knowing what comes.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from agentrl_jax import types


class Agent(Protocol):
  """A policy in the middle of an episode."""

  def act(self, messages: Sequence[types.Message]) -> types.Action:
    """Takes the messages that came since its last action."""
    ...

  def reseed(self, seed: str) -> None:
    """Draws anew from here on; what it knows stays."""
    ...


@dataclasses.dataclass(frozen=True)
class Labelled:
  """An episode with the value of the state that each turn led to.

  Attributes:
    trajectory: without tokens.
    start: value of the first state, before any turn.
    values: [S], share of continuations that succeed; after the last turn 0 or
      1, what happened.
    any_success: [S], whether any did (Math-Shepherd's hard labels).
  """

  trajectory: types.Trajectory
  start: float
  values: tuple[float, ...]
  any_success: tuple[bool, ...]


def label(
  make_env: Callable[[], Any],
  make_agent: Callable[[], Agent],
  task: types.Task,
  *,
  rollouts: int,
  max_turns: int,
  seed: int = 0,
) -> Labelled:
  """Plays an episode and values each of its states by Monte Carlo.

  Args:
    make_env: a fresh environment with snapshot and restore.
    make_agent: a fresh agent, equal each time: it is played into a state by
      what was seen, then reseeded.
    task: to play.
    rollouts: continuations a state, >= 1.
    max_turns: of an episode in all; one that does not end by then fails.
    seed: of the continuations.

  Raises:
    ValueError: no rollouts, or an environment without snapshots.
  """
  if rollouts < 1:
    raise ValueError(f'rollouts={rollouts}: must be >= 1')
  env, agent = make_env(), make_agent()
  if not hasattr(env, 'snapshot'):
    raise ValueError(f'{type(env).__name__} has no snapshots to go on from')
  seen = [env.reset(task).messages]
  snapshots, turns, done = [env.snapshot()], [], False
  while not done and len(turns) < max_turns:
    key, action = env.state_key(), agent.act(seen[-1])
    result = env.step(action)
    done = result.done
    turns.append(_turn(action, key, result))
    seen.append(result.observation.messages)
    if not done:
      snapshots.append(env.snapshot())
  env.close()

  def value(state: int) -> float:
    wins = 0
    for number in range(rollouts):
      agent = make_agent()
      for messages in seen[:state]:
        agent.act(messages)
      agent.reseed(f'{seed} {task.name} {state} {number}')
      env = make_env()
      env.restore(snapshots[state])
      wins += _goes_on(env, agent, seen[state], max_turns - state)
    return wins / rollouts

  values = [value(state) for state in range(len(snapshots))]
  if done:
    values.append(float(turns[-1].reward > 0))
  stop = types.StopReason.DONE if done else types.StopReason.MAX_TURNS
  return Labelled(
    trajectory=types.Trajectory(task, 0, seen[0], tuple(turns), (), stop),
    start=values[0],
    values=tuple(values[1:]),
    any_success=tuple(value > 0 for value in values[1:]),
  )


def _turn(action, key, result) -> types.Turn:
  return types.Turn(
    context=0,
    start=0,
    end=0,
    text=action.text,
    calls=action.calls,
    error=action.error,
    state_key=key,
    observation=result.observation.messages,
    reward=result.reward,
    info=result.info,
  )


def _goes_on(env, agent, messages, turns) -> bool:
  """Plays to the end; returns whether it succeeds."""
  reward = 0.0
  for _ in range(turns):
    result = env.step(agent.act(messages))
    messages, reward = result.observation.messages, result.reward
    if result.done:
      break
  env.close()
  return reward > 0
