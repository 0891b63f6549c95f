"""Trains an agent as a config says, from nothing to a report.

  python experiments/launch.py --config=configs/gigpo.py
    [--config.field=value ...] [--workdir=runs/NAME] [--display=auto]

The same command in the same workdir goes on where it was stopped. SIGTERM and
SIGINT save a checkpoint and exit with 143 and 130. On several hosts
(config.distributed) start it on each; exit status 75 says that another process
was lost and the run can go on.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import sys
import time
import traceback

START = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))

from agentrl_jax import config as config_lib  # noqa: E402
from agentrl_jax import display as display_lib  # noqa: E402
from agentrl_jax import runtime, supervisor  # noqa: E402


def parse(argv: list[str]) -> tuple[argparse.Namespace, dict[str, str]]:
  """Splits arguments into flags and config overrides.

  Raises:
    ConfigError: arguments that are neither.
  """
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--config', required=True, help='file in configs/')
  parser.add_argument('--workdir', default='', help='run directory')
  parser.add_argument('--display', default='auto', choices=display_lib.KINDS)
  parser.add_argument('--worker', type=int, default=0, help=argparse.SUPPRESS)
  flags, rest = parser.parse_known_args(argv)
  overrides, faults = {}, []
  for text in rest:
    name, equals, value = text.partition('=')
    if name.startswith('--config.') and equals:
      overrides[name.removeprefix('--config.')] = value
    else:
      faults.append(f'{text}: expected --config.field=value')
  if faults:
    raise config_lib.ConfigError(faults)
  return flags, overrides


def main(argv: list[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  argv = sys.argv[1:] if argv is None else argv
  try:
    flags, overrides = parse(argv)
    config = config_lib.load(flags.config, overrides)
  except config_lib.ConfigError as e:
    print(e, file=sys.stderr)
    return 2
  name = f'{pathlib.Path(flags.config).stem}_s{config.seed}'
  workdir = pathlib.Path(flags.workdir or ROOT / 'runs' / name)
  if config.distributed.coordinator and not flags.worker:
    number = config.distributed.process_id
    return supervisor.supervise(
      [sys.executable, __file__, f'--worker={os.getpid()}', *argv],
      workdir,
      who='a process' if number < 0 else f'process {number}',
    )
  return work(flags, config, workdir)


def work(flags: argparse.Namespace, config, workdir: pathlib.Path) -> int:
  """Does the run in this process; returns the exit code."""
  stop = runtime.Stop()
  if flags.worker:
    supervisor.follow_parent(flags.worker)
  runtime.tune_allocator()
  display_lib.quiet_logs()
  with (
    display_lib.Display(flags.display, start=START) as display,
    stop.installed(),
  ):
    display.note(f'{flags.config} -> {workdir}')
    try:
      code = attempt(config, workdir, display, stop)
    except RuntimeError as e:
      if not flags.worker:
        raise
      from agentrl_jax import distributed

      traceback.print_exc()
      return supervisor.TRY_AGAIN if distributed.is_lost(e) else 1
    if flags.worker:
      from agentrl_jax import distributed

      distributed.shutdown()
  return code


def attempt(config, workdir: pathlib.Path, display, stop) -> int:
  """Does the run, and tells of what ends it early; the same on every host."""
  # Imported late: jax takes seconds, the first line should not.
  display.stage('loading jax')
  from agentrl_jax import distributed
  from agentrl_jax.doctor import findings
  from agentrl_jax.rollout import breaker, loop, truncation
  from agentrl_jax.text import memory

  try:
    join(config, display)
    distributed.together(lambda: check(config))
    with contextlib.ExitStack() as held:
      distributed.together(lambda: claim(config, workdir, display, held))
      run(config, workdir, display, stop)
  except (config_lib.ConfigError, distributed.Unlike, runtime.InUse) as e:
    display.warn(str(e))
    return 2
  except loop.Interrupted:
    display.warn('stopped; the same command goes on from here')
    return stop.exit_code or 128 + signal.SIGTERM
  except (
    distributed.PeerFailed,
    distributed.NotJoined,
    FloatingPointError,
    findings.Unsound,
    breaker.TooManyFailures,
    truncation.TooLong,
    memory.Drift,
  ) as e:
    display.warn(str(e))
    return 1
  return 0


def join(config, display) -> None:
  """Joins the other processes of the run, if there are any."""
  import jax

  from agentrl_jax import distributed

  if any(size != 1 for size in config.mesh.values()):
    # On a CPU two programs with collectives would wait for each other.
    jax.config.update('jax_cpu_enable_async_dispatch', False)
  if not config.distributed.coordinator:
    return
  config_lib.validate(config)  # before waiting for anybody
  display.stage('waiting for the other processes')
  distributed.initialize(**config.distributed)
  display.note(
    f'process {distributed.index()} of {distributed.count()}, '
    f'{jax.local_device_count()} of {jax.device_count()} devices'
  )
  if not distributed.is_first():
    display.hush()


def claim(config, workdir: pathlib.Path, display, held) -> None:
  """Takes the run directory, unless another process does so for all."""
  from agentrl_jax import checkpoint, distributed

  if not distributed.is_first():
    return
  held.enter_context(runtime.locked(workdir))
  checkpoint.claim(workdir, config)
  facts = host_facts()
  changes = runtime.host_changes(workdir, facts)
  moved = 'devices ' in changes or 'hosts ' in changes
  if moved and not config.checkpoint.reshard:
    raise config_lib.ConfigError(
      [
        f'config.checkpoint.reshard=False: in {workdir} {changes}; true goes '
        'on from there, another --workdir begins anew'
      ]
    )
  # Nothing refuses any more: the run is of this config and host from here on.
  checkpoint.keep_config(workdir, config)
  runtime.keep_host(workdir, facts)
  if changes:
    display.warn(f'{changes}: numbers will differ in the last digits')


def check(config) -> None:
  """Raises ConfigError with every fault, before anything is compiled."""
  import jax

  from agentrl_jax import assembly

  runtime_cache(config, assembly.cache_root())
  config_lib.validate(
    config,
    tables=assembly.TABLES,
    num_devices=jax.device_count(),
    num_hosts=jax.process_count(),
    more=assembly.faults(config),
  )


def owner(workdir: pathlib.Path) -> str:
  """Who holds the run directory, as this host sees it."""
  lock, patience = workdir / '.lock', time.monotonic() + 10
  while time.monotonic() < patience:
    if lock.exists() and (text := lock.read_text()):
      return text
    time.sleep(0.1)  # a shared disk may show it late
  return 'nobody'


def host_facts() -> dict:
  """Returns what results repeat for, bit by bit."""
  import jax

  return {
    'backend': jax.default_backend(),
    'cores': runtime.num_cores(),
    'devices': jax.device_count(),
    'hosts': jax.process_count(),
    'jax': jax.__version__,
  }


def runtime_cache(config, root: pathlib.Path) -> None:
  """Turns on XLA's persistent compilation cache."""
  import jax

  where = config.compilation_cache
  if where:
    jax.config.update(
      'jax_compilation_cache_dir',
      str(root / 'xla') if where == 'auto' else where,
    )
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.2)


def run(config, workdir: pathlib.Path, display, stop) -> None:
  """Does the work: tokenizer, policy, fine-tuning, RL, report."""
  from agentrl_jax import (
    assembly,
    distributed,
    finetune,
    rejection,
    train,
    weights,
  )
  from agentrl_jax.models import fused

  display.stage('preparing tasks, demonstrations and tokenizer')
  language = assembly.language(config)
  if distributed.is_first():
    language.tokenizer.save(workdir / 'tokenizer')
  facts = assembly.shared_facts(config, language)
  distributed.require_equal(facts | {'workdir (not shared?)': owner(workdir)})
  model = assembly.model_config(config, language.tokenizer.vocab_size)
  if model.attention in fused.UNTESTED:
    display.warn(
      f'attention by {model.attention}: this project has not tested it '
      f'{fused.UNTESTED[model.attention]}; config.model.attention=xla is tested'
    )
  mesh = assembly.mesh(config)
  tuned = None
  if config.lora.rank and config.sft.steps and not config.lora.sft:
    tuned = weights.kept_base(config, model, mesh, str(workdir))
  # A run that goes on has its tuned base; caches may have been emptied.
  if tuned is None:
    params = weights.first_params(config, model, mesh)
  else:
    params = tuned
  engine = assembly.engine(config, model, language, mesh)
  collector = assembly.collector(config, engine, language, stop)
  parts = train.Parts(config, language, model, mesh, collector, display, stop)
  try:
    train.first_look(parts, params)
    if config.sft.steps and tuned is None:
      params = finetune.run(
        config,
        str(workdir),
        language=language,
        model=model,
        mesh=mesh,
        params=params,
        display=display,
        stop=stop,
      )
    trainer = rejection.Trainer if config.rejection.every else train.Trainer
    trainer(parts, str(workdir), params, START).run()
  finally:
    collector.close()
  if not distributed.is_first():
    return
  display.stage('drawing plots and writing the report')
  write_report(config, workdir)
  runtime.write_record(workdir, ROOT, START)
  display.note(f'done: {workdir / "report.html"}')


def write_report(config, workdir: pathlib.Path) -> None:
  """Draws the plots and writes report.html from what lies in the directory."""
  from agentrl_jax import metrics, plots, report
  from agentrl_jax.rollout import store

  rows = metrics.read(workdir)
  sft = metrics.read(workdir, name='sft')
  plots.draw(workdir, rows, sft_rows=sft)
  steps = store.steps(workdir)
  records = store.read(workdir, steps[-1])[:6] if steps else []
  report.write(
    workdir,
    rows,
    title=workdir.name,
    changes=config_lib.diff(config),
    records=records,
  )


if __name__ == '__main__':
  code = main()
  sys.stdout.flush()
  # Threads of libraries (grain, orbax) must not hold the exit up.
  os._exit(code)
