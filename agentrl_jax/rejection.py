"""What does a policy learn from its own best? RL with fine-tuning in between.

Every n-th iteration the best episodes of the last n are imitated: those that
were paid enough, each way of doing a task once, so many of a task at most
(rejection sampling). The tokens are the sampled ones.

Reference: Dong et al. 2023 (RAFT), arXiv:2304.06767; Touvron et al. 2023
(Llama 2), arXiv:2307.09288, section 3.2.3, which alternates it with RL. There
the best of a group is taken anyhow; here one that was not paid never is.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax

from agentrl_jax import data, finetune, train, types
from agentrl_jax.rollout import collate, store

KIND = 'best'  # of the files of episodes


def best(
  trajectories: Sequence[types.Trajectory], *, above: float, per_task: int
) -> list[types.Trajectory]:
  """Chooses what to imitate.

  Args:
    trajectories: finished; infrastructure failures are never chosen.
    above: an outcome that is higher counts.
    per_task: how many of a task at most, by total reward, then fewer turns,
      then as they stand.

  Returns:
    Task by task in the order of their first episode; no two of a task say the
    same.
  """
  tasks: dict[str, list[types.Trajectory]] = {}
  for t in trajectories:
    if t.stop_reason.trainable and t.turns and t.outcome > above:
      tasks.setdefault(t.task.name, []).append(t)
  out = []
  for members in tasks.values():
    members.sort(key=lambda t: (-t.worth, len(t.turns)))
    ways = {tuple(turn.text for turn in t.turns): t for t in members[::-1]}
    kept = {id(t) for t in ways.values()}
    out += [t for t in members if id(t) in kept][:per_task]
  return out


class Trainer(train.Trainer):
  """Reinforcement learning in six verbs: the last one is imitate."""

  def __init__(self, *args: Any):
    super().__init__(*args)
    c, model = self.config.rejection, self._learner.config
    self._imitator = finetune.imitator(
      self.config, model, self.parts.mesh, c.optimizer, c.updates
    )

  def _measure(self, groups: Sequence[types.Group]) -> dict[str, float]:
    flat = [t for group in groups for t in group.trajectories]
    self._kept = self._choose(flat)
    return super()._measure(groups)

  def _iterate(self, iteration: int) -> dict[str, float]:
    row = super()._iterate(iteration)
    done, every = iteration + 1, self.config.rejection.every
    store.write(self.workdir, done, self._kept, kind=KIND)
    if done % every:
      return row
    steps = range(max(done - every, 0) + 1, done + 1)
    records = [
      record
      for number in steps
      for record in store.read(self.workdir, number, kind=KIND)
    ]
    return row | self.imitate(done, [record.trajectory for record in records])

  def imitate(
    self, done: int, trajectories: Sequence[types.Trajectory]
  ) -> dict[str, float]:
    """Fine-tunes on the best of these episodes; returns what it measured.

    The optimizer begins anew each time, so that a resumed run does the same;
    that of RL keeps its moments.
    """
    c, chosen = self.config, self._choose(trajectories)
    row = {
      'rejection/episodes': float(len(chosen)),
      'rejection/tasks': float(len({t.task.name for t in chosen})),
      'rejection/nll': math.nan,
    }
    if not chosen:
      return row
    contexts = [context for t in chosen for context in t.contexts]
    rows = data.pack(
      [types.Tokens(x.tokens, x.sampled_mask) for x in contexts],
      row_length=c.train.row_length,
      observation_weight=c.sft.observation_weight,
    )
    batches = data.sft_batches(rows, num_rows=c.sft.rows, seed=c.seed + done)
    state = self._imitator.create(self._params)
    for update in range(c.rejection.updates):
      batch = finetune.batch(batches[update])
      parts = collate.microbatches(batch, c.train.rows)
      state, measured, _ = self._imitator.update(state, parts)
    sums = jax.device_get(measured.sums)
    row['rejection/nll'] = float(sums['nll'] / max(sums['tokens'], 1))
    if not math.isfinite(row['rejection/nll']):
      raise train.Diverged(
        f'imitation diverged after iteration {done}: lower '
        'config.rejection.optimizer.learning_rate'
      )
    self.state = self.state.replace(params=state.params)
    return row

  def _choose(self, trajectories):
    c = self.config.rejection
    return best(trajectories, above=c.above, per_task=c.per_task)
