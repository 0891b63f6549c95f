"""Bugs are found and mended in a shell; only the module counts."""

import types as types_lib

import pytest

from agentrl_jax import envs, types
from agentrl_jax.envs import (
  contract,
  panels,
  repair,
  sandbox,
  scripted,
  shell,
)

CASES = [['', f'f({x})', str(x * 2)] for x in (2, 3, 0, 5, -1)]
TEXT = 'def f(x):\n  """Doubles."""\n  return x * 2\n'
STAR = TEXT.index('*')
NONE = dict.fromkeys(repair.RepairEnv.rates, 0.0)


def task(**changes):
  data = {
    'module': 'm',
    'function': 'f',
    'text': TEXT,
    'bugs': [['arithmetic', STAR, STAR + 1, '+']],
    'cases': CASES,
    'shown': 3,
    'level': 1,
  }
  return types.Task('repair', 'test', 0, {**data, **changes})


@pytest.fixture
def env():
  made = repair.RepairEnv()
  made.reset(task())
  yield made
  made.close()


def do(env, name, **arguments):
  """What a tool replies."""
  result = env.step(scripted.call(name, **arguments))
  return result.observation.messages[0].content


def finish(env):
  return env.step(types.Action('done'))


@pytest.mark.parametrize('options', [{}, {'levels': (3,), 'output_chars': 300}])
def test_contract(options):
  contract.check_env('repair', num_tasks=1, turns=8, **options)


def test_an_episode_as_a_human_would(env):
  # 2 + 2 is 2 * 2: one of the three tests passes with the bug.
  assert do(env, 'run_tests') == (
    'passed 1 of 3\ntest_2: f(3) is 5, not 6\ntest_3: f(0) is 2, not 0'
  )
  assert do(env, 'read_file', path='m.py') == (
    '1 def f(x):\n2   """Doubles."""\n3   return x + 2'
  )
  assert do(env, 'execute_bash', command='ls; cat test_m.py') == (
    'm.py\ntest_m.py\nfrom m import *\n\ndef test_1():\n  assert f(2) == 4\n\n'
    'def test_2():\n  assert f(3) == 6\n\ndef test_3():\n  assert f(0) == 0'
  )
  assert do(env, 'execute_bash', command='sed -i s/+/*/ m.py') == 'no output'
  assert do(env, 'run_tests') == 'passed 3 of 3'
  result = finish(env)
  assert (result.reward, result.done) == (1.0, True)
  assert result.info['test_edits'] == 0
  assert result.info['patch'].splitlines() == [
    '--- a/m.py', '+++ b/m.py', '@@ -1,3 +1,3 @@',
    ' def f(x):', '   """Doubles."""', '-  return x + 2', '+  return x * 2',
  ]  # fmt: skip
  assert result.info['measures'] == {
    'contained': float(sandbox.choose().is_contained),
    'test_edits': 0.0,
  }


def test_another_way_of_writing_it_is_right_too(env):
  do(env, 'write_file', path='m.py', content='def f(y):\n  return y + y\n')
  assert finish(env).reward == 1.0


def test_answers_for_the_visible_tests_alone_are_not_enough(env):
  table = 'def f(x):\n  return {2: 4, 3: 6, 0: 0}[x]\n'
  do(env, 'write_file', path='m.py', content=table)
  assert do(env, 'run_tests') == 'passed 3 of 3'
  assert finish(env).reward == 0.0


# What changes the judge instead of the module: after it, the tests may pass.
CHEATS = {
  'the tests are emptied': "write_file('test_m.py', '')",
  'the tests want the bug': 'sed -i s/6/5/ test_m.py',
  'the tests are deleted': 'rm test_m.py',
  'the tests are another file': 'ln -sf /dev/null test_m.py',
  'the module is a link': 'echo "def f(x): return x * 2" > n; ln -sf n m.py',
  'a module of the library is shadowed': (
    'echo "dumps = lambda x: str(1)" > json.py; cp json.py builtins.py'
  ),
  'a start-up file': 'echo "import os; os._exit(0)" > sitecustomize.py',
  'python is another program': 'echo exit 0 > python; chmod +x python',
  'a result is left lying about': 'echo 3 of 3 > result; echo 1 > reward',
  'a process stays behind': (
    '(setsid sh -c "sleep 3; echo \'def f(x): return x*2\' > m.py" &)'
  ),
}


@pytest.mark.parametrize('cheat', CHEATS)
def test_what_is_done_beside_the_module_earns_nothing(env, cheat):
  command = CHEATS[cheat]
  if command.startswith('write_file'):
    do(env, 'write_file', path='test_m.py', content='')
  else:
    do(env, 'execute_bash', command=command)
  do(env, 'run_tests')
  result = finish(env)
  assert result.reward == 0.0
  touched = 'test_m' in command
  assert result.info['test_edits'] == touched
  assert result.info['measures']['test_edits'] == float(touched)


def test_recovery_is_success_after_an_edit_that_the_tests_refused():
  def episode(*texts):
    env = repair.RepairEnv()
    env.reset(task())
    for text in texts:
      do(env, 'write_file', path='m.py', content=text)
      do(env, 'run_tests')
    return finish(env).info['measures'].get('recovery')

  wrong = TEXT.replace('*', '-')
  assert episode(TEXT) is None  # the first edit was right
  assert episode(wrong, TEXT) == 1.0
  assert episode(wrong, wrong) == 0.0
  assert episode() is None


def test_a_cut_episode_has_not_recovered(env):
  do(env, 'write_file', path='m.py', content=TEXT.replace('*', '-'))
  result = env.step(scripted.call('run_tests'))
  assert result.info['measures']['recovery'] == 0.0


def test_failing_tests_before_any_edit_are_no_failed_edit(env):
  do(env, 'run_tests')
  do(env, 'write_file', path='m.py', content=TEXT)
  assert 'recovery' not in finish(env).info['measures']


def test_tests_say_what_is_wrong(env):
  for text, reply in (
    ('def f(x):\n  while True: pass\n', 'test_1: takes too long'),
    ('def f(x):\n  return y\n', "test_1: NameError: name 'y' is not defined"),
    ('def f(x:\n', 'the tests cannot be loaded: SyntaxError'),
    ('import os\nos._exit(3)\n', '[exit 3]'),
    ('', 'the tests'),
  ):
    do(env, 'write_file', path='m.py', content=text)
    seen = do(env, 'run_tests')
    assert reply in seen or (text == '' and 'NameError' in seen), seen


def test_exceptions_and_iterators_have_tests():
  cases = [['', 'f(1)', '!ValueError'], ['k = 2\n', 'f(k)', '~[2, 2]']]
  cases += [['', 'f(3)', '<odd>']]
  text = (
    'class Odd:\n  def __repr__(self): return "<odd>"\n'
    'def f(x):\n  if x == 1: raise ValueError\n'
    '  return iter([x] * 2) if x == 2 else Odd()\n'
  )
  made = task(text=text, cases=cases, bugs=[])
  env = repair.RepairEnv()
  env.reset(made)
  assert do(env, 'run_tests') == 'passed 3 of 3'
  assert finish(env).reward == 1.0
  bad = text.replace('raise ValueError', 'return 0').replace('* 2', '* 3')
  env = repair.RepairEnv()
  env.reset(task(text=bad, cases=cases, bugs=[]))
  assert do(env, 'run_tests') == (
    'passed 1 of 3\ntest_1: no ValueError\n'
    'test_2: list(itertools.islice(f(k), 50)) is [2, 2, 2], not [2, 2]'
  )


def test_the_key_holds_changes_reads_and_the_last_reply(env):
  assert env.state_key() == 'read -\n'
  do(env, 'read_file', path='m.py')
  do(env, 'execute_bash', command='cat m.py | wc -l')
  assert env.state_key() == 'read m.py\n3'
  do(env, 'write_file', path='b', content='1')
  do(env, 'write_file', path='a', content='2')
  assert env.state_key() == 'wrote a\n2\nwrote b\n1\nread m.py\nwritten'
  do(env, 'execute_bash', command='rm b')
  assert env.state_key() == (
    'wrote a\n2\nwrote b\n1\nran rm b\nread -\nno output'
  )


def test_writing_has_bounds(env):
  for path, content, reply in (
    ('../x', '', 'inside'),
    ('m.py/x', '', 'same name'),
    ('a' * 300, '', 'at most 200 bytes'),
    ('x', 'y' * 20_001, 'at most 20000'),
  ):
    assert reply in do(env, 'write_file', path=path, content=content)
  do(env, 'write_file', path='d/e', content='')
  assert 'same name' in do(env, 'write_file', path='d', content='')
  for number in range(61):
    do(env, 'write_file', path=f'f{number}', content='')
  assert do(env, 'write_file', path='more', content='') == 'at most 64 files'


def test_commands_of_a_turn_share_their_time(monkeypatch):
  env = repair.RepairEnv(wall_s=2.0)
  env.reset(task())
  given, clock = [], [0.0]

  def run(command, *, files, limits, backend):
    given.append(limits.wall_s)
    took = min(float(command), limits.wall_s)
    clock[0] += took
    reason = 'wall' if took < float(command) else ''
    return sandbox.Result(None, reason, '', files, (), limits)

  monkeypatch.setattr(sandbox, 'run', run)
  monkeypatch.setattr(
    shell, 'time', types_lib.SimpleNamespace(monotonic=lambda: clock[0])
  )
  calls = tuple(
    types.ToolCall('execute_bash', {'command': seconds})
    for seconds in ('0.5', '9', '1')
  )
  result = env.step(types.Action('', calls))
  assert given == [2.0, 1.5] and clock == [2.0]
  told = 'commands of a turn have 2 s together'
  replies = [m.content for m in result.observation.messages]
  assert replies == [
    'no output',
    f'[ended: it took longer than 2 s]\n[{told}]',
    f'no time is left: {told}',
  ]
  env.step(types.Action('', calls[:1]))  # the next turn has all of it
  assert given[-1] == 2.0


def test_a_failing_sandbox_is_infrastructure_and_no_reward(env, monkeypatch):
  def broken(*args, **kwargs):
    raise sandbox.SandboxError('no answer')

  monkeypatch.setattr(sandbox, 'run_python', broken)
  with pytest.raises(sandbox.SandboxError):
    finish(env)


def test_drawn_tasks_fail_visibly_and_levels_are_kept():
  for seed in range(4):
    data = repair.generate(seed, levels=(2,))
    assert data['level'] == 2
    env = repair.RepairEnv()
    env.reset(types.Task('repair', 'test', seed, data))
    assert do(env, 'run_tests').split('\n')[0] != (
      f'passed {data["shown"]} of {data["shown"]}'
    )
    assert finish(env).reward == 0.0
  with pytest.raises(ValueError, match=r'levels=\(5,\)'):
    repair.generate(0, levels=(5,))
  with pytest.raises(ValueError, match='make_repairs'):
    repair.generate(0, catalogue='/nowhere')


def test_of_two_bugs_both_have_to_be_mended():
  data = repair.generate(2, levels=(4,))
  assert (len(data['bugs']), data['level']) == (2, 4)
  half = repair.broken_text(data, 1)
  assert len({data['text'], half, repair.broken_text(data)}) == 3
  task = types.Task('repair', 'test', 0, data)
  for text, reward in ((half, 0.0), (data['text'], 1.0)):
    env = repair.RepairEnv()
    env.reset(task)
    do(env, 'write_file', path=f'{data["module"]}.py', content=text)
    passed = f'passed {data["shown"]} of {data["shown"]}'
    assert (do(env, 'run_tests') == passed) == bool(reward)
    assert finish(env).reward == reward
  messages, earned = repair.RepairEnv.demonstrate(task, seed=0, rates=NONE)
  names = [m.calls[0].name for m in messages if m.calls]
  assert names.count('run_tests') == 3 and earned == 1.0


def test_no_function_is_in_two_splits():
  functions = {
    split: {
      repair.RepairEnv.split_key(
        panels.draw(repair.RepairEnv, f'{split}/{i}', split, {})
      )
      for i in range(60)
    }
    for split in panels.SPLITS
  }
  assert all(len(found) > 8 for found in functions.values())
  assert not functions['train'] & functions['test']
  assert not functions['train'] & functions['validation']
  assert not functions['validation'] & functions['test']


@pytest.mark.parametrize(
  'errs, calls, reward',
  [
    ((), 'tests read edit tests', 1.0),
    (('untested',), 'tests read edit', 1.0),
    (('edits_tests',), 'tests read edit tests', 0.0),
    (('wrong_fix', 'gives_up'), 'tests read edit tests', 0.0),
    (('wrong_fix',), 'tests read edit tests read edit tests', 1.0),
  ],
)
def test_demonstrations_recover_give_up_and_cheat(errs, calls, reward):
  task = types.Task('repair', 'd', 0, repair.generate(5))
  rates = {**NONE, **dict.fromkeys(errs, 1.0)}
  messages, earned = repair.RepairEnv.demonstrate(task, seed=0, rates=rates)
  short = {'run_tests': 'tests', 'read_file': 'read'}
  names = [m.calls[0].name for m in messages if m.calls]
  assert ' '.join(short.get(name, 'edit') for name in names) == calls
  assert earned == reward


@pytest.mark.parametrize('options', [{'backend': 'x'}, {'output_chars': 9}])
def test_impossible_options_are_errors(options):
  with pytest.raises(ValueError, match=next(iter(options))):
    envs.make('repair', **options)
