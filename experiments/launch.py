"""Trains an agent as a config says, from nothing to a report.

  python experiments/launch.py --config=configs/gigpo.py
    [--config.field=value ...] [--workdir=runs/NAME] [--display=auto]

The same command in the same workdir goes on where it was stopped. SIGTERM and
SIGINT save a checkpoint and exit with 143 and 130.
"""

import argparse
import os
import pathlib
import sys
import time

START = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))

from agentrl_jax import config as config_lib  # noqa: E402
from agentrl_jax import display as display_lib  # noqa: E402
from agentrl_jax import runtime  # noqa: E402


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
  stop = runtime.Stop()
  try:
    flags, overrides = parse(sys.argv[1:] if argv is None else argv)
    config = config_lib.load(flags.config, overrides)
  except config_lib.ConfigError as e:
    print(e, file=sys.stderr)
    return 2
  name = f'{pathlib.Path(flags.config).stem}_s{config.seed}'
  workdir = pathlib.Path(flags.workdir or ROOT / 'runs' / name)
  runtime.tune_allocator()
  display_lib.quiet_logs()
  with (
    display_lib.Display(flags.display, start=START) as display,
    stop.installed(),
  ):
    display.note(f'{flags.config} -> {workdir}')
    try:
      # Imported late: jax takes seconds, the first line should not.
      display.stage('loading jax')
      from agentrl_jax import checkpoint
      from agentrl_jax.doctor import findings
      from agentrl_jax.rollout import breaker, loop, truncation
      from agentrl_jax.text import memory

      check(config)
      with runtime.locked(workdir):
        checkpoint.claim(workdir, config)
        changes = runtime.host_changes(workdir, host_facts())
        if changes:
          display.warn(f'{changes}: numbers will differ in the last digits')
        run(config, workdir, display, stop)
    except (config_lib.ConfigError, runtime.InUse) as e:
      display.warn(str(e))
      return 2
    except loop.Interrupted:
      display.warn('stopped; the same command goes on from here')
      return stop.exit_code
    except (
      FloatingPointError,
      findings.Unsound,
      breaker.TooManyFailures,
      truncation.TooLong,
      memory.Drift,
    ) as e:
      display.warn(str(e))
      return 1
  return 0


def check(config) -> None:
  """Raises ConfigError with every fault, before anything is compiled."""
  import jax

  from agentrl_jax import assembly

  runtime_cache(config, assembly.cache_root())
  config_lib.validate(
    config,
    tables=assembly.TABLES,
    num_devices=jax.device_count(),
    more=assembly.faults(config),
  )


def host_facts() -> dict:
  """Returns what results repeat for, bit by bit."""
  import jax

  return {
    'backend': jax.default_backend(),
    'cores': runtime.num_cores(),
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
  from agentrl_jax import assembly, finetune, train, weights

  display.stage('preparing tasks, demonstrations and tokenizer')
  language = assembly.language(config)
  language.tokenizer.save(workdir / 'tokenizer')
  model = assembly.model_config(config, language.tokenizer.vocab_size)
  mesh = assembly.mesh(config)
  params = weights.first_params(config, model, mesh)
  engine = assembly.engine(config, model, language, mesh)
  collector = assembly.collector(config, engine, language, stop)
  parts = train.Parts(config, language, model, mesh, collector, display, stop)
  try:
    train.first_look(parts, params)
    if config.sft.steps:
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
    train.Trainer(parts, str(workdir), params, START).run()
  finally:
    collector.close()
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
