"""Trajectories to be scored: written down, or played without a model."""

from agentrl_jax import rewards, types
from agentrl_jax.text import tools


def turn(reward=0.0, *, text='', tokens=0, key=None, **info):
  """A turn that was paid `reward`."""
  return types.Turn(
    0, 0, tokens, text, (), '', key, (), reward, {'valid': True, **info}
  )


def trajectory(*turns, stop=types.StopReason.DONE, task=None, sample=0):
  """A trajectory of turns, or of what they were paid."""
  turns = tuple(t if isinstance(t, types.Turn) else turn(t) for t in turns)
  task = task or types.Task('x', 'train', 0, {})
  prompt = (types.Message('user', 'do it'),)
  return types.Trajectory(task, sample, prompt, turns, (), stop)


def group(*trajectories):
  return types.Group(trajectories[0].task, tuple(trajectories))


def action(name, **arguments):
  """A call, through the text that a policy writes."""
  text = tools.render_call(types.ToolCall(name, arguments))
  return types.Action(text, tools.parse(text).calls)


def play(env, task, *actions, sample=0):
  """Plays actions; returns the trajectory without tokens."""
  prompt, turns = env.reset(task, sample=sample).messages, []
  for act in actions:
    key, result = env.state_key(), env.step(act)
    turns.append(
      types.Turn(
        0, 0, 1, act.text, act.calls, act.error, key,
        result.observation.messages, result.reward, result.info,
      )
    )  # fmt: skip
    if result.done:
      break
  env.close()
  stop = types.StopReason.DONE if result.done else types.StopReason.MAX_TURNS
  return types.Trajectory(task, sample, prompt, tuple(turns), (), stop)


def follow(env, task, agent, sample=0, max_turns=16):
  """Plays an agent with `act(messages)`; returns the trajectory."""
  new, actions, done = env.reset(task, sample=sample).messages, [], False
  other = type(env)()
  while not done and len(actions) < max_turns:
    actions.append(agent.act(new))
    result = env.step(actions[-1])
    new, done = result.observation.messages, result.done
  env.close()
  return play(other, task, *actions, sample=sample)


@rewards.over_group
def rank(group, *, top=1.0):
  """Compares: `top` at the end for the best outcome of the group."""
  best = max(t.outcome for t in group.trajectories)
  return [
    [0.0] * (len(t.turns) - 1) + [top * (t.outcome == best)]
    for t in group.trajectories
  ]


@rewards.over_group
class Counting:
  """Made once, with its options; counts its calls."""

  def __init__(self, value):
    if value < 0:
      raise ValueError(f'value={value}: give 0 or more')
    self._value, self._calls = value, 0

  def __call__(self, group):
    self._calls += 1
    return [[self._value] * len(t.turns) for t in group.trajectories]

  def drain(self):
    calls, self._calls = self._calls, 0
    return {'judge/calls': float(calls)}


def odd(trajectory):
  """A rule with a verdict that nobody knows."""
  return ['odd'] * len(trajectory.turns)
