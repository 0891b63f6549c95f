"""The program that runs commands: small, warm, forked anew for each of them.

The client starts it once, without threads and with an environment of its own,
and hands it one socket a call: the request comes as a line of JSON, the answer
goes back as one. A supervisor forked beforehand takes it; with namespaces that
is process 1 of a world of its own. Whoever dies, those below die with it.
"""

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from agentrl_jax.envs.sandbox import bwrap, filters, jail, kernel, tree, watch

# Loaded before any fork, so that small programs start at once, also where the
# library cannot be read any more.
_WARM = (
  *('bisect', 'collections', 'copy', 'dataclasses', 'datetime', 'decimal'),
  *('enum', 'fractions', 'functools', 'heapq', 'itertools', 'math', 'operator'),
  *('random', 're', 'statistics', 'string', 'textwrap', 'typing', 'linecache'),
)
_SPARES = 2  # supervisors that are ready
_PAUSE_S = 0.05  # before one that died waiting is replaced: it may happen again
USERS = 256  # that one server takes turns with, as root


def first_user(pid: int) -> int:
  """The lowest of a server's users, which no other server has."""
  return (1 << 20) + pid * USERS


def serve(
  control: int, base: str, backend: str, programs: Mapping[str, str]
) -> None:
  """Answers calls until the other end of `control` is closed.

  Spare supervisors wait in their namespaces, and each call takes one. One that
  dies while it waits (killed from outside, say) is replaced as well.

  Args:
    control: a socket that brings sockets.
    base: a folder of this server, removed at the end.
    backend: that runs the commands.
    programs: that the backend needs, where they are.
  """
  for name in _WARM:
    __import__(name)
  filters.program()  # kept for the forks
  gc.disable()
  gc.freeze()  # forks share what nobody collects
  signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's affair
  spot = os.path.join(base, 'root')
  os.mkdir(spot)
  first = first_user(os.getpid())
  poll = select.poll()
  poll.register(control, select.POLLRDHUP)
  number, spares, events = 0, [], {}
  while control not in events:
    while len(spares) < _SPARES:
      number += 1
      taken, took = os.pipe()
      if not os.fork():
        try:
          os.close(taken)
          uid = first + number % USERS if os.geteuid() == 0 else None
          _wait(control, took, spot, uid, backend, programs)
        finally:
          os._exit(0)
      os.close(took)
      spares.append(taken)
      poll.register(taken, select.POLLIN)
    events = dict(poll.poll())
    for taken in set(spares) & set(events):
      if not os.read(taken, 1):
        time.sleep(_PAUSE_S)
      poll.unregister(taken)
      os.close(taken)
      spares.remove(taken)
  tree.remove(base)


def _wait(
  control: int,
  took: int,
  spot: str,
  uid: int | None,
  backend: str,
  programs: Mapping[str, str],
) -> None:
  """Is a spare supervisor: prepares, waits for a call, runs it, answers.

  With namespaces it prepares a world, and process 1 of that does the rest; with
  bwrap it starts one, and another if that was ended meanwhile. A fault of ours
  is an answer as well. To `took` it writes that it has a call.
  """
  signal.signal(signal.SIGCHLD, signal.SIG_DFL)
  kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
  fault, place, world = '', '', None
  if backend != 'bwrap':  # which has to become somebody else by itself
    kernel.bound()
  if backend == 'namespaces':
    try:
      jail.enter(spot, uid)
      pid = os.fork()
      if pid:
        os.close(control)
        os.close(took)
        os.waitpid(pid, 0)
        return
      kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
      kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # nobody inside looks into it
      jail.finish(spot)
    except OSError as error:
      fault = str(error)
  else:
    try:
      place = _place(os.path.dirname(spot), uid)
    except OSError as error:
      fault = str(error)
  if backend == 'bwrap' and place:
    with contextlib.suppress(OSError):  # the call tries again, and tells
      world = bwrap.start(programs, place, uid)
  connection = _receive(control)
  if connection is None:
    return
  os.write(took, b'.')
  os.close(took)
  with connection:
    try:
      if fault:
        raise OSError(fault)
      with connection.makefile('r', encoding='utf-8') as lines:
        request = json.loads(lines.readline())
      if backend == 'namespaces':
        _in_namespaces(request, connection, uid)
        return
      if backend == 'bwrap' and not (world and bwrap.is_up(world)):
        world = bwrap.start(programs, place, uid)
      _on_host(request, connection, place, uid, world)
    except Exception as error:  # noqa: BLE001 (the client has to hear of it)
      _answer(connection, {'fault': f'{type(error).__name__}: {error}'})
    finally:
      if place:
        tree.remove(place)


def _place(base: str, uid: int | None) -> str:
  """Makes a folder with those of a command, which belong to its user."""
  place = tempfile.mkdtemp(dir=base)
  for folder in (place, place + jail.TASK, place + jail.TEMPORARY):
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if uid is not None:
      os.chown(folder, uid, uid)
  return place


def _receive(control: int) -> socket.socket | None:
  """Takes the socket of a call; None when the client has gone."""
  descriptors = array.array('i')
  with socket.socket(fileno=control) as server:
    size = descriptors.itemsize
    data, ancillary, _, _ = server.recvmsg(1, socket.CMSG_LEN(size))
  for _, _, payload in ancillary:
    descriptors.frombytes(payload[:size])
  return socket.socket(fileno=descriptors[0]) if data else None


def _answer(connection: socket.socket, answer: Mapping[str, Any]) -> None:
  """Sends the answer; a client that has gone does not get it."""
  line = json.dumps({'fault': '', **answer}) + '\n'
  with contextlib.suppress(OSError):
    connection.sendall(line.encode())


def _in_namespaces(request, connection, uid: int | None) -> None:
  """Fills /task, runs the command, takes back what it left."""
  jail.limit(request['tree_bytes'], request['tree_files'] * 2)
  tree.write(jail.TASK, request['files'], uid)
  request['environment'] = jail.environment()

  def look():
    names = filter(str.isdigit, os.listdir('/proc'))
    return watch.excess(request, [int(n) for n in names if n != '1'])

  pid, out = watch.start(request, uid, jail.TASK)
  outcome = watch.follow(pid, out, request, look, connection.fileno())
  watch.end_namespace()
  _report(request, connection, outcome, jail.TASK)


def _on_host(
  request, connection, place: str, uid: int | None, world: bwrap.World | None
) -> None:
  """Runs in a folder of the host, by bwrap or with kernel limits alone."""
  task, temporary = place + jail.TASK, place + jail.TEMPORARY
  tree.write(task, request['files'], uid)

  def look():
    size, number = tree.size(place)
    if size > request['tree_bytes'] or number > request['tree_files'] * 2:
      return 'files'
    return watch.excess(request, kernel.descendants(os.getpid()))

  if world:
    bwrap.give(world, request, uid)
    pid, out = world.pid, world.out
  else:
    request['environment'] = jail.environment(task, temporary)
    writable = ['/dev/' + name for name in jail.DEVICES]
    request['confine'] = [jail.programs(), [task, temporary, *writable]]
    pid, out = watch.start(request, uid, task)
  outcome = watch.follow(pid, out, request, look, connection.fileno())
  if world and outcome['status'] == 128 + signal.SIGXCPU:
    outcome['reason'] = 'cpu'  # bwrap tells signals so
  if not watch.end_descendants(uid):
    outcome['reason'] = 'unkillable'
  _report(request, connection, outcome, task)


def _report(request, connection, outcome: dict[str, Any], task: str) -> None:
  """Sends what came of it."""
  files, dropped = tree.read(task, request['tree_files'], request['tree_bytes'])
  output = outcome.pop('output').decode('utf-8', 'replace')
  _answer(
    connection,
    {
      **outcome,
      'output': output.replace(task, jail.TASK),
      'files': files,
      'dropped': dropped,
    },
  )
