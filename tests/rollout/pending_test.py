"""What is under way comes back as it was written, and old files go."""

import dataclasses
import types

import numpy as np
import pytest
import rollout_fakes as made

from agentrl_jax.rollout import pending
from agentrl_jax.rollout.stream import Drawn

PAST = (
  Drawn((5, 6), (-0.1, -0.30000000000000004), (2, 4), True, 123),
  Drawn((7,), (-1.5,), (4,), False, 4294967295),
)


def members():
  task = made.tasks(2)[1]
  done = made.append_only([2, 3], reward=1.0, task=task, sample=1)
  return [
    pending.Member(3, task, 0, past=PAST),
    pending.Member(3, task, 1, done=dataclasses.replace(done, rewards={})),
    pending.Member(4, dataclasses.replace(task, data={'a': 'é\u2028b'}), 2),
  ]


def test_it_comes_back_to_the_bit(tmp_path):
  pending.write(tmp_path, 12, {'published': [[4, 3]]}, members())
  head, found = pending.read(tmp_path, 12)
  assert head == {'published': [[4, 3]]}
  assert found == members()


def test_of_another_checkpoint_there_is_nothing(tmp_path):
  pending.write(tmp_path, 12, {}, members())
  assert pending.read(tmp_path, 11) == ({}, [])


def test_the_last_two_files_are_kept(tmp_path):
  for step in (8, 9, 10, 10):
    pending.write(tmp_path, step, {'step': step}, [])
  names = sorted(p.name for p in (tmp_path / 'pending').iterdir())
  assert names == ['000009.jsonl', '000010.jsonl']


def test_files_of_a_later_step_go_before_those_that_are_needed(tmp_path):
  """Cut between 12 and its checkpoint, the run went on from 10."""
  for step in (10, 12, 11):
    pending.write(tmp_path, step, {'step': step}, [])
  names = sorted(p.name for p in (tmp_path / 'pending').iterdir())
  assert names == ['000010.jsonl', '000011.jsonl']


def test_tasks_may_hold_what_a_store_takes(tmp_path):
  data = {'n': np.int64(3), 'some': {2, 1}, 'at': types.MappingProxyType({})}
  task = dataclasses.replace(made.tasks(1)[0], data=data)
  pending.write(tmp_path, 1, {}, [pending.Member(0, task, 0, past=PAST)])
  (member,) = pending.read(tmp_path, 1)[1]
  assert member.task.data == {'n': 3, 'some': [1, 2], 'at': {}}


def test_half_a_file_is_never_left(tmp_path):
  pending.write(tmp_path, 1, {}, members())
  bad = pending.Member(1, made.tasks(1)[0], 0, past=(object(),))
  with pytest.raises(TypeError):
    pending.write(tmp_path, 1, {}, [bad])
  assert pending.read(tmp_path, 1)[1] == members()
