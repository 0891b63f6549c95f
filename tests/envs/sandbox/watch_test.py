"""What a command writes last is kept."""

import os

from agentrl_jax.envs.sandbox import watch


def test_what_is_written_between_the_last_look_and_the_end(monkeypatch):
  out, into = os.pipe()
  os.set_blocking(out, False)

  def reap(pid, status):
    os.write(into, b'last')
    return 0

  monkeypatch.setattr(watch, 'reap', reap)
  request = {'wall_s': 5.0, 'output_bytes': 100}
  outcome = watch.follow(os.getpid(), out, request, lambda: '')
  assert outcome == {'status': 0, 'reason': '', 'output': b'last'}
  os.close(out)
  os.close(into)


def test_too_much_at_the_end_is_too_much(monkeypatch):
  out, into = os.pipe()
  os.set_blocking(out, False)

  def reap(pid, status):
    os.write(into, b'x' * 21)
    return 0

  monkeypatch.setattr(watch, 'reap', reap)
  request = {'wall_s': 5.0, 'output_bytes': 1}
  outcome = watch.follow(os.getpid(), out, request, lambda: '')
  assert outcome['reason'] == 'output' and len(outcome['output']) == 20
  os.close(out)
  os.close(into)
