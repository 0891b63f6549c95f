"""Labels of steps in the formats of PRM800K and of TRL, there and back."""

import dataclasses
import json

import pytest
import reward_fakes as made

from agentrl_jax import envs, types
from agentrl_jax.rewards import steps

MISSION = steps.Steps('2 + 2?', ('add', 'slip', 'four'), (1.0, -0.5, 0.3))
RATED = steps.Steps('2 + 2?', ('add', 'hm', 'five'), (1.0, 0.0, -1.0))


def test_trl_by_hand():
  record = {
    'prompt': '2 + 2?',
    'completions': ['add', 'hm', 'five'],
    'labels': [True, False, False],
  }
  assert steps.to_trl(RATED) == record
  assert steps.to_trl(RATED, threshold=0)['labels'] == [True, True, False]
  assert steps.to_trl(MISSION, threshold=0.3)['labels'] == [True, False, True]
  assert steps.from_trl(record).labels == (1.0, 0.0, 0.0)


def completion(text, rating):
  return {'text': text, 'rating': rating, 'flagged': None}


def step(*completions, chosen=0, human=None):
  return {
    'completions': [completion(*each) for each in completions],
    'human_completion': human,
    'chosen_completion': chosen,
  }


def solution(*given):
  label = {'steps': list(given), 'finish_reason': 'solution'}
  return {'question': {'problem': '2 + 2?'}, 'label': label}


def test_prm800k_by_hand():
  """The chosen path, a person's step, the end at the first mistake."""
  record = solution(
    step(('add', 1), ('subtract', -1)),
    step(('no', -1), ('nor', -1), chosen=None, human={'text': 'two and two'}),
    step(('five', -1), ('hm', 0), chosen=None),
  )
  (path,) = steps.from_prm800k(record)
  assert path.prompt == '2 + 2?'
  assert path.steps == ('add', 'two and two', 'five')
  assert path.labels == (1.0, 1.0, -1.0)
  found = steps.from_prm800k(record, alternatives=True)
  assert [(each.steps, each.labels) for each in found[1:]] == [
    (('subtract',), (-1.0,)),
    (('add', 'no'), (1.0, -1.0)),
    (('add', 'nor'), (1.0, -1.0)),
    (('add', 'two and two', 'hm'), (1.0, 1.0, 0.0)),
  ]


def test_a_path_ends_before_a_step_without_a_rating():
  record = solution(step(('a', 1)), step(('b', None)), step(('c', 1)))
  (path,) = steps.from_prm800k(record)
  assert path.steps == ('a',)
  assert steps.from_prm800k(solution(step(('b', None)))) == []


def test_there_and_back():
  (back,) = steps.from_prm800k(steps.to_prm800k(RATED))
  assert back == RATED
  assert steps.to_prm800k(RATED)['label']['finish_reason'] == 'found_error'
  text = steps.dumps([RATED, RATED], style='prm800k')
  assert steps.loads(text, style='prm800k') == [RATED, RATED]
  (again,) = steps.loads(steps.dumps([RATED]) + '\n')
  assert again.labels == (1.0, 0.0, 0.0)
  assert json.loads(steps.dumps([RATED]))['completions'][2] == 'five'


def test_letters_that_some_take_for_line_ends_are_letters():
  given = steps.Steps('a\u2028b', ('one\u0085', 'two\u2029'), (1.0, 0.0))
  assert steps.loads(steps.dumps([given])) == [given]


def test_a_turn_is_a_step_with_what_came_back():
  episode = made.play(
    envs.make('arithmetic'),
    types.Task('arithmetic', 't', 0, {'left': 1, 'operator': '+', 'right': 2}),
    types.Action('3'),
  )
  assert steps.of_trajectory(episode, [1]) == steps.Steps(
    '1+2=?', ('3',), (1.0,)
  )


def test_the_system_prompt_is_no_part_of_the_problem():
  prompt = types.Message('system', 'Count.'), types.Message('user', '1+2=?')
  turn = made.turn(text='3')
  episode = dataclasses.replace(made.trajectory(turn), prompt=prompt)
  assert steps.of_trajectory(episode, [1]).prompt == '1+2=?'


@pytest.mark.parametrize(
  'text, style, said',
  [
    ('{"prompt": "a"}', 'trl', 'line 1: no stepwise record'),
    ('{"prompt": "a", "completions": "b", "labels": [true]}', 'trl', 'line 1'),
    ('{"prompt": "a", "completions": ["b"], "labels": [1]}', 'trl', 'bools'),
    ('{"prompt": "a", "completions": ["b"], "labels": []}', 'trl', '0 labels'),
    ('\n[1]', 'trl', 'line 2'),
    ('{', 'trl', 'line 1'),
    ('{"question": {}}', 'prm800k', "line 1: no labelled .*'problem'"),
    (json.dumps(solution(step(('a', 1), chosen=5))), 'prm800k', 'IndexError'),
  ],
)
def test_what_cannot_be_read_is_told_by_line(text, style, said):
  with pytest.raises(ValueError, match=said):
    steps.loads(text, style=style)


def test_what_cannot_be_written():
  with pytest.raises(ValueError, match=r'labels \[-0.5, 0.3\]: PRM800K rates'):
    steps.to_prm800k(MISSION)
  with pytest.raises(ValueError, match='2 labels for 1 steps'):
    steps.Steps('a', ('b',), (1.0, 0.0))
  with pytest.raises(ValueError, match='finite'):
    steps.Steps('a', ('b',), (float('nan'),))
