"""A line of anybody's dump becomes a sample, or an error that tells where."""

import json

import pytest
import tiny_run

from agentrl_jax import types
from agentrl_jax.doctor import dumps
from agentrl_jax.rollout import store

made = tiny_run.made
BOTH = {'prompt_ids': [1, 2], 'completion_ids': [3, 4, 5]}


def read(tmp_path, *rows):
  path = tmp_path / 'dump.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return dumps.read(path)


def one(tmp_path, **row):
  ((sample,), _) = read(tmp_path, row)
  return sample


@pytest.mark.parametrize(
  'mask, aligned',
  [
    ([0, 0, 1, 1, 0], (False, False, True, True, False)),  # as long as all
    ([0, 1, 1, 0], (False, False, True, True, False)),  # of the next token
    ([1, 1, 0], (False, False, True, True, False)),  # of the response
  ],
)
def test_arrays_are_aligned_by_their_length(mask, aligned, tmp_path):
  assert one(tmp_path, **BOTH, completion_mask=mask).mask == aligned


def test_an_array_of_no_length_is_a_fault_not_an_error(tmp_path):
  sample = one(tmp_path, **BOTH, completion_mask=[1], logprobs=[-1.0] * 6)
  assert sample.mask is None and sample.logprobs is None
  assert sample.faults == (
    'mask has 1 entries for 5 tokens',
    'logprobs has 6 entries for 5 tokens',
  )


def test_padding_on_the_left_is_before_the_prompt(tmp_path):
  sample = one(
    tmp_path,
    tokens=[0, 0, 1, 2, 3, 4, 5],
    prompt_ids=[1, 2],
    response_ids=[3, 4, 5],
    attention_mask=[0, 0, 1, 1, 1, 1, 1],
    old_log_probs=[-0.5, -1.0, -2.0],
  )
  assert sample.prompt == 4
  assert sample.attention[:3] == (False, False, True)
  assert sample.learner_logprobs == (*[None] * 4, -0.5, -1.0, -2.0)


def test_the_first_name_counts_and_nothing_is_no_name(tmp_path):
  sample = one(tmp_path, uid=None, group_id=2, group=3, reward=None, score=0.5)
  assert sample.group == '2' and sample.reward == 0.5


@pytest.mark.parametrize(
  'given, reward, fault',
  [
    ([0, 0.5, 1], 1.5, ()),
    ({'a': 1, 'b': -0.5}, 0.5, ()),
    (True, 1.0, ()),
    ('high', None, ("reward 'high' is no number",)),
  ],
)
def test_rewards(given, reward, fault, tmp_path):
  sample = one(tmp_path, output='x', reward=given)
  assert (sample.reward, sample.faults) == (reward, fault)


@pytest.mark.parametrize(
  'given, values',
  [
    (0.5, (0.5,)),
    ([0.5, None, 1], (0.5, 1.0)),
    ([{'values': [0.5]}, {'values': [1], 'mask': [True]}], (0.5, 1.0)),
    ('x', ()),
    ([], ()),
  ],
)
def test_advantages(given, values, tmp_path):
  assert one(tmp_path, output='x', advantage=given).advantages == values


def test_a_group_is_its_json_whatever_the_order(tmp_path):
  samples, _ = read(
    tmp_path,
    {'prompt': [{'role': 'user', 'content': 'q'}], 'response': 'a'},
    {'prompt': [{'content': 'q', 'role': 'user'}], 'response': 'b'},
  )
  assert len({sample.group for sample in samples}) == 1
  assert [sample.text for sample in samples] == ['a', 'b']


def test_what_is_no_token_list_is_no_tokens(tmp_path):
  for ids in ([1, 2.0], [True], ['a'], 'text', {'a': 1}):
    sample = one(tmp_path, prompt_ids=[1], completion_ids=ids)
    assert sample.tokens == ()


def test_contexts_of_a_trajectory_are_samples(tmp_path):
  played = made.append_only([2, 1], reward=1.0)
  path = store.write(tmp_path, 1, [played], advantages=[[0.5, -0.5]])
  (sample,), ((line, trajectory),) = dumps.read(path)
  assert line == sample.line == 1 and trajectory == played
  assert sample.tokens == played.contexts[0].tokens
  assert sample.mask == played.contexts[0].sampled_mask
  assert sample.advantages == (0.5, -0.5)
  assert sample.prompt == played.turns[0].start
  assert sample.reward == 1.0 and sample.group == played.task.name


def test_failures_are_left_out_and_alone_are_an_error(tmp_path):
  lost = made.append_only([1], stop_reason=types.StopReason.ENV_ERROR)
  path = store.write(tmp_path, 1, [lost, made.append_only([1])])
  samples, own = dumps.read(path)
  assert [s.line for s in samples] == [2] and len(own) == 1
  path.write_text(path.read_text().splitlines()[0] + '\n')
  with pytest.raises(dumps.DumpError, match='1 failures alone in it'):
    dumps.read(path)


@pytest.mark.parametrize(
  'line, words',
  [
    (b'{"reward": ', 'line 2: no JSON'),
    (b'[1]', r'line 2: \[1\] is no object'),
    (b'"\xff"', 'line 2: no JSON'),
    (b'[' * 100_000, 'line 2: no JSON'),
    (b'{"contexts": [], "turns": []}', 'line 2: not our format'),
  ],
)
def test_what_cannot_be_read_is_told_by_line(line, words, tmp_path):
  path = tmp_path / 'dump.jsonl'
  path.write_bytes(b'{"reward": 1}\n' + line + b'\n')
  with pytest.raises(dumps.DumpError, match=words):
    dumps.read(path)


def test_a_folder_is_no_dump(tmp_path):
  with pytest.raises(dumps.DumpError, match='no such file'):
    dumps.read(tmp_path)
