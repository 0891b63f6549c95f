"""Every environment keeps the contract, and each clause has teeth."""

import socket
import subprocess
import threading
import time

import pytest

from agentrl_jax import envs, types
from agentrl_jax.envs import base, contract


@pytest.mark.parametrize(
  'name, options',
  [
    ('flight', {}),
    ('flight', {'legs': 1, 'key_orders': 'flight'}),
    ('flight', {'legs': 3, 'distractors': 0.5, 'failing_tools': 0.2}),
    ('flight', {'sold_out': (0, 0, 0, 1), 'instructions': 'task+hints'}),
    ('flight', {'key_orders': 'none', 'instructions': 'none'}),
    ('arithmetic', {}),
    ('arithmetic', {'operators': '*'}),
  ],
)
def test_environments_keep_the_contract(name, options):
  contract.check_env(name, **options)


class Honest(base.ToolEnv):
  """Guess the number. Below, each kind of dishonesty."""

  tools = (
    base.function('guess', 'Guesses.', required=['x'], x={'type': 'string'}),
  )
  revealing = ('guess',)

  @staticmethod
  def generate(seed):
    return {'number': seed}

  @classmethod
  def hidden_sibling(cls, task):
    return types.Task(task.env, task.split, task.index, {'number': -1})

  def call_guess(self, arguments):
    self._done = arguments['x'] == str(self._number)
    return 'right' if self._done else 'wrong'

  def snapshot(self):
    return dict(vars(self))

  def restore(self, snapshot):
    vars(self).update(snapshot)

  def _start(self, task, sample):
    self._number = task.data['number']
    return 'guess'

  def _judge(self, text):
    return 1.0


class Random(Honest):
  def call_guess(self, arguments):
    return f'wrong at {time.perf_counter_ns()}'


class Raising(Honest):
  def call_guess(self, arguments):
    return 'right' if int(arguments['x']) == self._number else 'wrong'


class Endless(Honest):
  def call_guess(self, arguments):
    return arguments['x'] * 10


class Telling(Honest):
  def _start(self, task, sample):
    super()._start(task, sample)
    return f'guess (it is {self._number})'


class Leaking(Honest):
  revealing = ()

  def state_key(self):
    return f'{self._number}\n{self._last}'


class OneKey(Honest):
  def state_key(self):
    return 'the same everywhere'

  def call_guess(self, arguments):
    return f'wrong: {base.clip(arguments["x"])}'


class Numbered(Honest):
  def state_key(self):
    return 7


class Forgetful(Honest):
  _count = 0

  def call_guess(self, arguments):
    type(self)._count += 1
    return f'wrong {self._count % 1000}'


class SharedSnapshot(Honest):
  def _start(self, task, sample):
    self._seen = []
    return super()._start(task, sample)

  def call_guess(self, arguments):
    self._seen.append(arguments['x'])
    return f'wrong, {len(self._seen)} so far'


class Immortal(Honest):
  alive = []

  def _start(self, task, sample):
    self.alive.append(self)
    return super()._start(task, sample)


class Threading(Honest):
  def _start(self, task, sample):
    threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
    return super()._start(task, sample)


class Filing(Honest):
  kept = []

  def _start(self, task, sample):
    self.kept.append(open(__file__))  # noqa: SIM115 (the fault)
    return super()._start(task, sample)


class Connecting(Honest):
  kept = []

  def _start(self, task, sample):
    self.kept.append(socket.socket())
    return super()._start(task, sample)


class Spawning(Honest):
  kept = []

  def _start(self, task, sample):
    quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
    self.kept.append(subprocess.Popen(['sleep', '1'], **quiet))
    return super()._start(task, sample)


class LongWinded(Honest):
  def _start(self, task, sample):
    super()._start(task, sample)
    return 'guess ' * 1000


class Counting(Honest):
  """Its replies hang on how many turns there were; its key hides that."""

  markov_keys = True
  tools = (base.function('guess', 'Guesses.'),)

  def _start(self, task, sample):
    self._turn = 0
    return super()._start(task, sample)

  def call_guess(self, arguments):
    self._turn += 1
    return 'wrong' if self._turn < 5 else 'wrong again'


class Reviving(Honest):
  def close(self):
    pass


class Unpaid(Honest):
  @classmethod
  def oracle(cls, task):
    class Oracle:
      def act(self, messages):
        return types.Action('', (types.ToolCall('guess', {'x': 'x'}),))

    return Oracle()


@pytest.mark.parametrize(
  'env_class, clause',
  [
    (Random, 'same task and actions, same observations'),
    (Raising, 'malformed actions never raise'),
    (Endless, 'observations are <= 3000 characters'),
    (Telling, 'hidden state does not show at reset'),
    (Leaking, 'hidden state does not show until a tool reveals it'),
    (OneKey, 'equal state keys had equal last observations'),
    (Numbered, 'state_key is str'),
    (Forgetful, 'same task and actions, same observations'),
    (SharedSnapshot, 'restore continues identically'),
    (Immortal, 'close leaves nothing that holds the environment'),
    (Threading, 'close leaves no threads'),
    (Filing, 'close leaves no files or sockets'),
    (Connecting, 'close leaves no files or sockets'),
    (Spawning, 'close leaves no processes'),
    (LongWinded, 'observations are <= 3000 characters'),
    (Counting, 'equal Markov keys have equal futures'),
    (Reviving, 'step after close raises'),
    (Unpaid, 'the oracle earns 1'),
  ],
)
def test_each_clause_catches_its_fault(env_class, clause, monkeypatch):
  monkeypatch.setitem(envs.ENVS, 'bad', env_class)
  with pytest.raises(contract.ContractError, match=clause):
    contract.check_env('bad')


def test_the_honest_one_passes(monkeypatch):
  monkeypatch.setitem(envs.ENVS, 'good', Honest)
  contract.check_env('good')


class Silent(Honest):
  """Says nothing to a call that it does not know."""

  def _answer(self, call):
    reply, error = super()._answer(call)
    return ('' if error == 'unknown_tool' else reply), error


def test_a_malformed_call_may_not_be_met_with_silence(monkeypatch):
  monkeypatch.setitem(envs.ENVS, 'bad', Silent)
  with pytest.raises(contract.ContractError, match='told what is wrong'):
    contract.check_env('bad')
