"""Trains a head on labels of steps; says how well it knows others.

tools/run tools/train_head.py LABELS.jsonl --to=runs/heads/flight
  [--kind=process|outcome] [--held-out=0.2] [--updates=200] [--log=FILE]

LABELS are TRL's stepwise records, as tools/label_steps.py writes them. The last
share of them is held out: of those come the AUC and the rank correlation,
printed as a line of JSON (for tools/record.py in FILE too). A config uses it by
('learned', 0.5, {'score': 'agentrl_jax.scorer:load',
'options': {'directory': 'runs/heads/flight'}, 'pay': 'progress'}).
"""

import argparse
import json
import pathlib
import sys
import time

from agentrl_jax.rewards import calibration, steps


def main(arguments: list[str] | None = None) -> int:
  """Trains, measures, saves; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('labels', help='JSON lines of TRL')
  parser.add_argument('--to', required=True, help='new directory')
  parser.add_argument('--kind', default='process', help='process or outcome')
  parser.add_argument('--held-out', type=float, default=0.2, help='share')
  parser.add_argument('--updates', type=int, default=200)
  parser.add_argument('--row-length', type=int, default=512)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--log', help='file for the line of JSON')
  options = parser.parse_args(arguments)
  start = time.monotonic()
  try:
    if pathlib.Path(options.to).exists():
      raise ValueError(f'--to={options.to}: is there already')
    read = pathlib.Path(options.labels).read_text(encoding='utf-8')
    line = _train(steps.loads(read), options)
  except (OSError, ValueError) as error:
    print(error, file=sys.stderr)
    return 1
  line['seconds'] = round(time.monotonic() - start, 1)
  print(json.dumps(line))
  if options.log:
    text = json.dumps(line) + '\n'
    pathlib.Path(options.log).write_text(text, encoding='utf-8')
  return 0


def _train(records, options) -> dict[str, float | str]:
  from agentrl_jax import scorer

  held = round(len(records) * options.held_out)
  if not 0 < held < len(records):
    raise ValueError(
      f'--held-out={options.held_out}: of {len(records)} records some must be '
      'held out and some be left'
    )
  learnt, last = records[:-held], -1 if options.kind == 'outcome' else 0
  prompts = {each.prompt for each in learnt}  # tasks may come again
  others = [each for each in records[-held:] if each.prompt not in prompts]
  labels = [y for each in others for y in each.labels[last:]]
  if len({y > 0.5 for y in labels}) < 2:
    raise ValueError(
      f'{len(others)} held-out records with tasks of their own have '
      f'{len(labels)} labels, not of both kinds: more records, or more of them '
      f'held out (--held-out={options.held_out})'
    )
  head = scorer.train(
    learnt,
    kind=options.kind,
    updates=options.updates,
    row_length=options.row_length,
    seed=options.seed,
  )
  scorer.save(head, options.to)
  found = scorer.load(directory=options.to).steps(others)
  scores = [x for row in found for x in row[last:]]
  return {
    'head': options.kind,
    'auc': calibration.auc(scores, [y > 0.5 for y in labels]),
    'rank_correlation': calibration.rank_correlation(scores, labels),
    'episodes': len(learnt),
    'held_out': len(others),
    'labels': len(labels),
    'good': sum(y > 0.5 for y in labels) / len(labels),
  }


if __name__ == '__main__':
  sys.exit(main())
