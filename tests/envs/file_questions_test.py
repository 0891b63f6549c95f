"""Questions about a folder: what is right is what the shell finds."""

import collections

import pytest

from agentrl_jax import types
from agentrl_jax.envs import contract, file_questions, sandbox, scripted


def start(**changes):
  data = {
    'files': {'a.md': 'one\n', 'd/b.md': 'two\n', 'd/c.txt': 'three\n'},
    'question': 'How many .md files are there?',
    'answer': '2',
    'command': "find . -name '*.md' | wc -l",
    'level': 1,
  }
  env = file_questions.FileQuestionsEnv()
  env.reset(types.Task('file_questions', 'test', 0, {**data, **changes}))
  return env


def test_contract():
  contract.check_env('file_questions', num_tasks=2, turns=8)


def test_the_loop_of_the_mission():
  """Ask the shell, read, answer."""
  env = start()
  result = env.step(
    scripted.call('execute_bash', command="find . -name '*.md' | sort")
  )
  assert result.observation.messages[0].content == './a.md\n./d/b.md'
  result = env.step(scripted.call('read_file', path='d/b.md'))
  assert result.observation.messages[0].content == '1 two'
  result = env.step(types.Action('There are 2.'))
  assert (result.reward, result.done) == (1.0, True)


@pytest.mark.parametrize(
  'answer, text, reward',
  [
    ('2', '2', 1.0),
    ('2', 'It is **2**', 0.0),
    ('2', '1 or 2', 1.0),  # the last word counts
    ('2', '2 files', 0.0),
    ('2', '', 0.0),
    ('d/b.md', './d/b.md', 1.0),
    ('d/b.md', 'the file `d/b.md`.', 1.0),
    ('d/b.md', 'b.md', 0.0),
  ],
)
def test_the_last_word_is_the_answer(answer, text, reward):
  assert start(answer=answer).step(types.Action(text)).reward == reward


def test_every_question_comes_up_and_commands_agree_with_the_tree():
  kinds, asked = collections.Counter(), {}
  for seed in range(80):
    data = file_questions.generate(seed)
    kind = ' '.join(data['question'].split()[:3])
    kinds[kind] += 1
    asked.setdefault((kind, data['level']), data)
  assert len(kinds) >= 6
  assert {level for _, level in asked} == {1, 2, 3}
  for data in asked.values():
    result = sandbox.run(data['command'], files=data['files'])
    assert result.text() == data['answer'], data['question']


def test_answers_vary():
  answers = collections.Counter(
    file_questions.generate(seed)['answer'] for seed in range(200)
  )
  assert answers.most_common(1)[0][1] < 60


def test_levels():
  levels = {file_questions.generate(s, levels=(3,))['level'] for s in range(9)}
  assert levels == {3}
  with pytest.raises(ValueError, match=r'levels=\(\)'):
    file_questions.generate(0, levels=())


def test_demonstrations_err_and_succeed():
  rewards = collections.Counter()
  for seed in range(16):
    task = types.Task('f', 'd', seed, file_questions.generate(seed))
    _, reward = file_questions.FileQuestionsEnv.demonstrate(task, seed=seed)
    rewards[reward] += 1
  assert min(rewards[0.0], rewards[1.0]) >= 3


def test_a_folder_survives_between_commands_without_links():
  env = start()
  for command, reply in (
    ('echo x > new; ln -s a.md link; ls', 'a.md\nd\nlink\nnew\n'
     '[not kept: link (a link)]'),
    ('ls', 'a.md\nd\nnew'),
  ):  # fmt: skip
    result = env.step(scripted.call('execute_bash', command=command))
    assert result.observation.messages[0].content == reply
