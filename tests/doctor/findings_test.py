"""docs/doctor.md names every check and every field that is read."""

import pathlib

from agentrl_jax.doctor import dumps, findings

PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'doctor.md'


def test_the_page_lists_the_checks_and_whether_they_stop_a_run():
  page = PAGE.read_text(encoding='utf-8')
  for name, check in findings.CHECKS.items():
    stops = 'yes' if check.wrong else 'no'
    assert f'| `{name}` | {check.asks} | {stops} |' in page
    assert check.causes and check.remedy


def test_the_page_lists_the_names_that_are_read():
  page = PAGE.read_text(encoding='utf-8')
  for field, names in dumps.NAMES.items():
    listed = ', '.join(f'`{name}`' for name in names)
    assert f'| {field} | {listed} |' in page
