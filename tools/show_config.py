"""Prints a config as the programs see it, one field a line.

tools/run tools/show_config.py configs/gigpo.py [--changed]
  [--config.train.iterations=5 ...]
"""

import argparse
import sys

from agentrl_jax import config


def main(arguments: list[str] | None = None) -> int:
  """Prints `field = value` lines; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('config', help='a file of configs/')
  parser.add_argument(
    '--changed', action='store_true', help='only what differs from the default'
  )
  options, rest = parser.parse_known_args(arguments)
  overrides = {}
  for item in rest:
    field, equals, value = item.partition('=')
    if not field.startswith('--config.') or not equals:
      parser.error(f'{item}: expected --config.FIELD=VALUE')
    overrides[field.removeprefix('--config.')] = value
  try:
    loaded = config.load(options.config, overrides)
    config.validate(loaded)
  except config.ConfigError as error:
    print(error, file=sys.stderr)
    return 1
  known = config.flatten(config.default())
  fields = config.diff(loaded) if options.changed else config.flatten(loaded)
  for field, value in sorted(fields.items()):
    was = f'  # default {known[field]!r}' if options.changed else ''
    print(f'{field} = {value!r}{was}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
