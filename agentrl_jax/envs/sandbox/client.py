"""Who runs an untrusted command for us? A server of its own, warm and shared.

One server a process, started at the first command and ended with the process;
each command gets a fresh world and leaves nothing but text. Several threads may
call at once.
"""

import atexit
import dataclasses
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax.envs.sandbox import records, tree

BACKENDS = ('bwrap', 'namespaces', 'plain')  # the best first
_PATIENCE_S = 20.0  # beyond the wall limit, until the server counts as dead
_TRIAL_S = 5.0

# The server imports its own few modules and not the packages around them.
_BOOT = """
import sys, types
for name, path in {packages!r}:
  sys.modules[name] = types.ModuleType(name)
  sys.modules[name].__path__ = [path]
from agentrl_jax.envs.sandbox import zygote
zygote.serve({control}, {base!r}, {backend!r}, {programs!r})
"""


class SandboxError(RuntimeError):
  """The sandbox itself failed, not the command: infrastructure."""


class ContainmentWarning(RuntimeWarning):
  """Commands run with less around them than this code would like."""


@dataclasses.dataclass(frozen=True)
class Choice:
  """The backend that runs commands, and why no better one does."""

  backend: str
  refused: Mapping[str, str]

  @property
  def is_contained(self) -> bool:
    """Whether commands have namespaces of their own."""
    return self.backend != 'plain'


class Server:
  """The process that runs commands, for as long as this object lives."""

  def __init__(self, backend: str):
    programs = _programs(backend)
    self._lock = threading.Lock()
    self._is_silent = False
    self._base = tempfile.mkdtemp(prefix='agentrl_sandbox_', dir=_folder())
    os.chmod(self._base, 0o711)
    self._control, theirs = socket.socketpair(
      socket.AF_UNIX, socket.SOCK_SEQPACKET
    )
    folder = pathlib.Path(__file__).parent
    names = ('agentrl_jax', 'agentrl_jax.envs', 'agentrl_jax.envs.sandbox')
    paths = (folder.parents[1], folder.parent, folder)
    boot = _BOOT.format(
      packages=[(name, str(path)) for name, path in zip(names, paths)],
      control=theirs.fileno(),
      base=self._base,
      backend=backend,
      programs=programs,
    )
    with theirs:
      self._process = subprocess.Popen(
        [os.path.realpath(sys.executable), '-S', '-s', '-P', '-c', boot],
        pass_fds=[theirs.fileno()],
        env={'PYTHONHASHSEED': '0', 'LANG': 'C.UTF-8', 'PATH': '/usr/bin:/bin'},
        cwd='/',
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
      )

  @property
  def is_alive(self) -> bool:
    """Whether it can still be asked."""
    return not self._is_silent and self._process.poll() is None

  def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs one command and waits.

    Raises:
      SandboxError: the server died, or could not run it. Without any answer
        it is asked no more: the next command starts another.
    """
    ours, theirs = socket.socketpair()
    with ours:
      with theirs, self._lock:
        try:
          socket.send_fds(self._control, [b'.'], [theirs.fileno()])
        except OSError as error:
          raise SandboxError(f'the server is gone: {error}') from error
      ours.settimeout(request['wall_s'] + _PATIENCE_S)
      try:
        ours.sendall((json.dumps(request) + '\n').encode())
        with ours.makefile('r', encoding='utf-8') as lines:
          line = lines.readline()
      except OSError as error:  # a timeout is one
        self._is_silent = True
        raise SandboxError(f'no answer: {error}') from error
    if not line:
      self._is_silent = True
      raise SandboxError('no answer: the supervisor died')
    answer = json.loads(line)
    if answer['fault']:
      raise SandboxError(answer['fault'])
    return answer

  def close(self) -> None:
    """Ends the server; commands that still run are ended too."""
    self._control.close()
    try:
      self._process.wait(5.0)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    tree.remove(self._base)


_servers: dict[str, Server] = {}
_owner = os.getpid()  # after a fork the servers are the parent's
_lock = threading.Lock()
_choice: list[Choice] = []


def _folder() -> str | None:
  """Where temporary folders lie: in memory, if there is such a place."""
  memory = '/dev/shm'
  return memory if os.access(memory, os.W_OK | os.X_OK) else None


def server(backend: str) -> Server:
  """The server of this process; started, or started again, if there is none."""
  global _owner
  with _lock:
    if _owner != os.getpid():
      _servers.clear()
      _owner = os.getpid()
    running = _servers.get(backend)
    if running is None or not running.is_alive:
      if running is not None:
        running.close()
      _servers[backend] = Server(backend)
    return _servers[backend]


@atexit.register
def close() -> None:
  """Ends the servers of this process; the next command starts another."""
  with _lock:
    while _servers:
      running = _servers.popitem()[1]
      if _owner == os.getpid():
        running.close()


def choose() -> Choice:
  """Finds out, once, which backend this machine has; warns of the plain one."""
  if not _choice:
    refused = {}
    for backend in BACKENDS:
      refused[backend] = trial(backend)
      if not refused[backend]:
        break
    else:
      raise SandboxError(f'no command can be run here: {refused}')
    del refused[backend]
    _choice.append(Choice(backend, refused))
    if not _choice[0].is_contained:
      why = '; '.join(f'{name}: {text}' for name, text in refused.items())
      warnings.warn(
        'UNTRUSTED COMMANDS RUN WITHOUT NAMESPACES: limits, Landlock and a '
        'seccomp filter are all there is, see docs/sandbox.md. Install '
        f'bubblewrap, or allow user namespaces. ({why})',
        ContainmentWarning,
        stacklevel=2,
      )
  return _choice[0]


def trial(backend: str) -> str:
  """Runs a command by a backend; returns why it cannot, '' if it can."""
  if backend not in BACKENDS:
    return f'unknown; known: {", ".join(BACKENDS)}'
  limits = records.Limits(wall_s=_TRIAL_S)
  try:
    request = {'argv': ['/bin/sh', '-c', 'echo $HOME'], 'files': {}}
    request.update(limits.request())
    answer = server(backend).ask(request)
  except SandboxError as error:
    return str(error)
  fine = answer['status'] == 0 and answer['output'] == '/task\n'
  return '' if fine else f'a trial ended with {answer["output"].strip()!r}'


def run(
  command: str | Sequence[str],
  *,
  files: Mapping[str, str] | None = None,
  limits: records.Limits | None = None,
  backend: str = 'auto',
) -> records.Result:
  """Runs a command in a fresh folder, /task.

  Args:
    command: a line for bash, or a program with its arguments.
    files: what lies in the folder, text by path.
    limits: what it may use.
    backend: 'auto' for the best that there is, or one of `BACKENDS`.

  Returns:
    What it wrote, and the files as it left them. That is all it leaves. What
    is no command has status 126, as for a shell.

  Raises:
    SandboxError: the sandbox itself failed.
    ValueError: unknown backend, or a path that leads outside.
  """
  argv = command
  if isinstance(command, str):
    argv = ['/bin/bash', '--norc', '--noprofile', '-c', command]
  return _run({'argv': list(argv)}, files, limits, backend)


def run_python(
  source: str,
  *,
  files: Mapping[str, str] | None = None,
  limits: records.Limits | None = None,
  backend: str = 'auto',
) -> records.Result:
  """Runs a Python program; without bwrap, in a fork of a warm interpreter.

  The folder is not on `sys.path`. Arguments, results and errors as of `run`.
  """
  return _run({'python': source}, files, limits, backend)


def _run(what, files, limits, backend: str) -> records.Result:
  limits = limits or records.Limits()
  words = what.get('argv', [what.get('python')])
  if not words or any('\0' in word for word in words):
    fault = 'a command has words, and none of them a null character\n'
    return records.Result(126, '', fault, dict(files or {}), (), limits)
  if backend == 'auto':
    backend = choose().backend
  if backend not in BACKENDS:
    raise ValueError(f'backend={backend!r}: give auto, {", ".join(BACKENDS)}')
  request = {'files': files or {}, **limits.request(), **what}
  answer = server(backend).ask(request)
  return records.Result(
    answer['status'],
    answer['reason'],
    answer['output'],
    answer['files'],
    tuple(answer['dropped']),
    limits,
  )


def _programs(backend: str) -> dict[str, str]:
  """Where the programs are that a backend starts."""
  names = ['bwrap'] if backend == 'bwrap' else []
  if names and os.geteuid() == 0:
    names.append('setpriv')
  found = {name: shutil.which(name) for name in names}
  missing = [name for name, path in found.items() if path is None]
  if missing:
    raise SandboxError(f'{missing[0]} is not installed')
  return {name: path for name, path in found.items() if path}
