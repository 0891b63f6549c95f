"""Foreign rollouts: what is read, what is found, in which line."""

import json
import re
import subprocess
import sys

import pytest
import tiny_run

from agentrl_jax.doctor import dumps, samples
from agentrl_jax.rollout import store

made = tiny_run.made

# Prompt 1 2, response 3 4 5; log-probs of the response.
VERL = {
  'uid': 'a',
  'prompts': [1, 2],
  'responses': [3, 4, 5],
  'response_mask': [1, 1, 1],
  'rollout_log_probs': [-0.5, -0.25, -1.0],
  'old_log_probs': [-0.5, -0.25, -1.0],
  'token_level_scores': [0, 0, 1.0],
  'advantages': [0.5, 0.5, 0.5],
}
TRL = {
  'prompt': 'Two and two?',
  'prompt_ids': [1, 2],
  'completion_ids': [3, 4, 5],
  'completion_mask': [1, 1, 1],
  'sampling_per_token_logps': [-0.5, -0.25, -1.0],
  'old_per_token_logps': [-0.5, -0.25, -1.0],
  'rewards': {'correct': 1.0, 'format': 0.5},
  'advantage': 0.5,
}
PRIME = {
  'example_id': 7,
  'token_ids': [1, 2, 3, 4, 5],
  'mask': [False, False, True, True, True],
  'logprobs': [0.0, 0.0, -0.5, -0.25, -1.0],
  'advantages': [{'loss': 'rl', 'values': [0.5], 'mask': [True]}],
  'reward': 1.0,
}
OLDER_PRIME = {
  'example_id': 7,
  'prompt_ids': [1, 2],
  'prompt_mask': [False, False],
  'completion_ids': [3, 4, 5],
  'completion_mask': [True, True, True],
  'completion_logprobs': [-0.5, -0.25, -1.0],
  'advantage': 0.5,
  'reward': 1.0,
}
OTHER = {  # of the same task: another sample, another reward
  'prompts': [1, 2],
  'responses': [3, 6, 5],
  'response_mask': [1, 1, 1],
  'reward': 0.0,
}


def write(tmp_path, *rows):
  path = tmp_path / 'dump.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return path


def found(tmp_path, *rows):
  faults, asked = samples.examine(*dumps.read(write(tmp_path, *rows)))
  return [(f.kind, f.line, f.text) for f in faults], asked


@pytest.mark.parametrize('row', [VERL, TRL, PRIME, OLDER_PRIME])
def test_one_sample_whatever_the_names(row, tmp_path):
  (sample,), own = dumps.read(write(tmp_path, row))
  assert not own and not sample.faults
  assert sample.tokens == (1, 2, 3, 4, 5)
  assert sample.mask == (False, False, True, True, True)
  assert sample.logprobs[2:] == (-0.5, -0.25, -1.0)
  assert sample.reward == (1.5 if row is TRL else 1.0)
  assert set(sample.advantages) == {0.5} and sample.group is not None


def test_text_alone_is_read_and_grouped(tmp_path):
  rows = [
    {'input': 'q', 'output': out, 'gts': '4', 'score': score, 'step': 1}
    for out, score in (('4', 1.0), ('5', 0.0))
  ]
  faults, asked = found(tmp_path, *rows)
  assert not faults
  assert asked['group'] == 2 and asked['mask'] == asked['logprob'] == 0


def test_a_healthy_group_has_no_fault(tmp_path):
  faults, asked = found(tmp_path, VERL, {**OTHER, 'uid': 'a'})
  assert not faults
  assert asked == {
    'format': 2, 'mask': 2, 'drift': 0, 'logprob': 1, 'group': 2, 'anchor': 0
  }  # fmt: skip


MASKS = {
  'inverted': ([1, 1, 0, 0, 0], '2 tokens of the prompt .*inverted'),
  'shifted': ([0, 1, 1, 1, 0], '1 tokens of the prompt .*shifted'),
  'empty': ([0, 0, 0, 0, 0], 'no token is trained'),
}


@pytest.mark.parametrize('name', MASKS)
def test_masks(name, tmp_path):
  mask, text = MASKS[name]
  row = {'prompt_ids': [1, 2], 'tokens': [1, 2, 3, 4, 5], 'loss_mask': mask}
  faults, _ = found(tmp_path, {'tokens': [9], 'loss_mask': [1]}, row)
  ((kind, line, said),) = faults
  assert (kind, line) == ('mask', 2)
  assert re.match(text, said)


def test_padding_that_is_trained(tmp_path):
  row = {
    'prompt_ids': [1, 2],
    'tokens': [1, 2, 3, 4, 0],
    'loss_mask': [0, 0, 1, 1, 1],
    'attention_mask': [1, 1, 1, 1, 0],
  }
  faults, _ = found(tmp_path, row)
  assert faults == [('mask', 1, '1 padding tokens are trained')]


LOGPROBS = {
  '1 log-probs of trained tokens are not finite': [-0.5, float('nan'), -1.0],
  '1 log-probs are above 0, such as 1': [-0.5, 1.0, -1.0],
}


@pytest.mark.parametrize('text', LOGPROBS)
def test_logprobs_that_cannot_be(text, tmp_path):
  row = {**VERL, 'rollout_log_probs': LOGPROBS[text]}
  del row['old_log_probs']
  faults, _ = found(tmp_path, row, {**OTHER, 'uid': 'a'})
  assert faults == [('logprob', 1, text)]


def test_logprobs_shifted_against_the_mask(tmp_path):
  row = {
    'tokens': [1, 2, 3, 4, 5],
    'mask': [0, 0, 1, 1, 1],
    'logprobs': [0.0, -0.5, -0.25, -1.0, 0.0],
  }
  ((kind, line, text),) = found(tmp_path, row)[0]
  assert (kind, line) == ('logprob', 1)
  assert '1 trained tokens have log-prob 0 while 1 untrained' in text


def test_a_temperature_that_one_side_lacks_is_a_slope(tmp_path):
  # Half as sharp: learner = 0.5 x sampler; mean gap (.25+.125+.5)/3 = .292.
  row = {**VERL, 'old_log_probs': [-0.25, -0.125, -0.5]}
  ((kind, line, text),) = found(tmp_path, row, {**OTHER, 'uid': 'a'})[0]
  assert (kind, line) == ('logprob', 1)
  assert '0.292' in text and 'learner = 0.50 x sampler' in text


def test_a_step_that_rewrites_history(tmp_path):
  first = {**VERL, 'traj_uid': 't'}
  good = {**first, 'prompts': [1, 2, 3, 4, 5, 8], 'responses': [9, 9, 9]}
  bad = {**good, 'prompts': [1, 2, 3, 7, 5, 8]}
  faults, asked = found(tmp_path, first, good)
  assert asked['drift'] == 1 and not [f for f in faults if f[0] == 'drift']
  faults, _ = found(tmp_path, first, bad)
  ((line, text),) = [f[1:] for f in faults if f[0] == 'drift']
  assert line == 2 and 'leaves line 1 at token 3 of 5' in text


def test_groups(tmp_path):
  # Equal at a chance of e^-1.75 they may be; at e^-17.5 they are copies.
  assert not found(tmp_path, VERL, VERL)[0]
  unlikely = {**VERL, 'rollout_log_probs': [-5.0, -2.5, -10.0]}
  del unlikely['old_log_probs']
  ((_, line, text),) = found(tmp_path, unlikely, unlikely)[0]
  assert (line, text) == (1, '2 members are one sample, copied')
  # One advantage for all is REINFORCE's; two are a spread that there is not.
  phantom = {**VERL, 'advantages': [-0.5] * 3}
  ((_, line, text),) = found(tmp_path, VERL, phantom)[0]
  assert line == 1 and 'equal, its advantages -0.5 to 0.5' in text
  ((_, line, text),) = found(tmp_path, VERL)[0]
  assert line == 0 and 'every group has one member' in text
  rows = [
    {'group': task, 'output': f'{i}', 'score': 1.0}
    for task in range(4)
    for i in range(2)
  ]
  assert not found(tmp_path, *rows[:6])[0]  # three groups: by chance
  ((_, line, text),) = found(tmp_path, *rows)[0]
  assert line == 0 and text.startswith('all 4 groups have equal rewards')


def test_our_own_trajectories_with_credit_by_turn(tmp_path):
  # Both succeed, one a turn later: turns differ in credit, and should.
  played = [made.append_only(n, reward=1.0) for n in ([3, 2], [2, 1, 2])]
  path = store.write(
    tmp_path, 1, played, advantages=[[0.5, 0.4, 0], [-0.2, -0.3, 0.1]]
  )
  faults, asked = samples.examine(*dumps.read(path))
  assert not faults
  assert asked['mask'] == asked['logprob'] == asked['group'] == 2
  # The reply of the first one's first turn counts as sampled.
  line = path.read_text().splitlines()[0]
  data = json.loads(line)
  data['contexts'][0]['sampled_mask'][5] = True
  path.write_text(f'{line}\n{json.dumps(data)}\n')
  faults, _ = samples.examine(*dumps.read(path))
  assert ('mask', 2, 'context 0, token 5: sampled, but in no turn') in [
    (f.kind, f.line, f.text) for f in faults
  ]


def test_anchors(tmp_path):
  def row(task, anchor, token):
    return {
      **OTHER,
      'responses': [token] * 3,
      'uid': task,
      'anchor_obs': anchor,
      'reward': float(token % 2),
    }

  rows = [row('a', 'at the door', 1), row('a', 'at the door', 2)]
  faults, asked = found(tmp_path, *rows)
  assert not faults and asked['anchor'] == 2
  faults, _ = found(tmp_path, *rows, row('b', 0.5, 3), row('b', 0.5, 4))
  assert [f[1] for f in faults] == [3, 4] and 'float' in faults[0][2]
  digest = 'd41d8cd98f00b204e9800998ecf8427e'
  faults, _ = found(tmp_path, row('a', digest, 1), row('a', digest, 2))
  assert 'digest' in faults[0][2]
  faults, _ = found(tmp_path, *(row('a', f'{i}', i) for i in range(4)))
  assert faults == [
    ('anchor', 0, '4 of 4 anchors stand alone: little to compare (> 35 %)')
  ]


def test_arrays_that_disagree(tmp_path):
  faults, _ = found(
    tmp_path, {**VERL, 'response_mask': [1, 1]}, {**OTHER, 'uid': 'a'}
  )
  assert faults == [('format', 1, 'mask has 2 entries for 5 tokens')]


def test_what_is_no_dump(tmp_path):
  with pytest.raises(dumps.DumpError, match='no such file'):
    dumps.read(tmp_path / 'none.jsonl')
  path = tmp_path / 'dump.jsonl'
  path.write_text('{"reward": 1}\nnonsense\n')
  with pytest.raises(dumps.DumpError, match='line 2: no JSON'):
    dumps.read(path)
  path.write_text('\n')
  with pytest.raises(dumps.DumpError, match='no rollouts in it'):
    dumps.read(path)


def test_reading_loads_no_jax():
  code = (
    'import sys; from agentrl_jax.doctor import dumps, samples; '
    'sys.exit("jax" in sys.modules)'
  )
  assert subprocess.run([sys.executable, '-c', code]).returncode == 0
