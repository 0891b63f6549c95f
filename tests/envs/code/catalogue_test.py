"""What the package brings is as good as it says; a catalogue is built anew."""

import json

import pytest

from agentrl_jax.envs.code import catalogue, items, mutations, trials

OWN = catalogue.load()


def test_there_are_thousands_and_they_fit_the_seeds():
  assert len(OWN['bugs']) >= 2000
  texts = {item.name: item.text for item in items.seeds()}
  assert {n: item['text'] for n, item in OWN['items'].items()} == {
    name: texts[name] for name in OWN['items']
  }, 'run tools/make_repairs.py'
  assert {bug[-1] for bug in OWN['bugs']} == {1, 2, 3}
  assert {bug[1] for bug in OWN['bugs']} == set(mutations.KINDS)


def test_every_bug_is_one_of_the_table():
  for name, item in list(OWN['items'].items())[::8]:
    table = {
      (bug.kind, bug.start, bug.end, bug.replacement)
      for bug in mutations.bugs(item['text'], item['function'])
    }
    mine = [tuple(bug[1:5]) for bug in OWN['bugs'] if bug[0] == name]
    assert mine
    assert set(mine) <= table


@pytest.mark.parametrize('name', sorted(OWN['items'])[::30])
def test_bugs_fail_and_fixes_pass_as_recorded(name):
  item = OWN['items'][name]
  cases = [(before, asked) for before, asked, _ in item['cases']]
  expected = [result for _, _, result in item['cases']]
  bugs = [bug for bug in OWN['bugs'] if bug[0] == name][:20]
  texts = [mutations.Bug(*bug[1:5]).put_into(item['text']) for bug in bugs]
  good, *others = trials.run(item['module'], [item['text'], *texts], cases)
  assert good == expected
  for bug, results in zip(bugs, others):
    wrong = [not trials.is_equal(a, b) for a, b in zip(results, expected)]
    assert [sum(wrong[: item['shown']]), sum(wrong)] == bug[5:7]
    assert bug[5] >= 1


@pytest.mark.parametrize('name', sorted(OWN['items'])[3::40])
def test_pairs_fail_as_recorded_and_each_bug_alone_fails_too(name):
  item = OWN['items'][name]
  cases = [(before, asked) for before, asked, _ in item['cases']]
  expected = [result for _, _, result in item['cases']]
  pairs = [pair for pair in OWN['pairs'] if pair[0] == name]
  assert pairs
  for _, first, second, shown, every in pairs:
    one, two = mutations.Bug(*first), mutations.Bug(*second)
    texts = [
      mutations.with_bugs(item['text'], bugs)
      for bugs in ((one, two), (one,), (two,))
    ]
    failed = []
    for results in trials.run(item['module'], texts, cases):
      wrong = [not trials.is_equal(a, b) for a, b in zip(results, expected)]
      failed.append([sum(wrong[: item['shown']]), sum(wrong)])
    assert failed[0] == [shown, every]
    assert min(visible for visible, _ in failed) >= 1


def test_pairs_lie_apart_and_do_not_hide_each_other():
  text = 'def f(x):\n  y = x + 1\n  return y - 1\n'
  item = items.Item('m', 'f', text, (('', 'f(1)'), ('', 'f(5)')))
  kept, good, _ = catalogue.of_item(item)
  pairs = catalogue.pairs_of_item(kept, good)
  texts = set()
  for _, first, second, failed, _ in pairs:
    one, two = mutations.Bug(*first), mutations.Bug(*second)
    assert one.end < two.start and failed >= 1
    texts.add(mutations.with_bugs(text, (two, one)))
  assert pairs == catalogue.pairs_of_item(kept, good)
  # What is too much in one line is taken off in the other: no test notices.
  assert text.replace('1', '2') not in texts and texts


def test_levels():
  short, long = 'x\n' * 15, 'x\n' * 16
  assert catalogue.level(short, 'call', 3, 4) == 1
  assert catalogue.level(short, 'call', 2, 4) == 2  # half of the tests
  assert catalogue.level(short, 'bounds', 3, 4) == 2
  assert catalogue.level(long, 'call', 3, 4) == 2
  assert catalogue.level(long, 'bounds', 1, 4) == 3
  assert catalogue.level(long, 'call', 1, 4) == 3


def test_a_catalogue_is_built_and_read(tmp_path):
  text = 'def f(x):\n  return x + 1\n'
  good = items.Item('m', 'f', text, (('', 'f(1)'), ('', 'f(5)')))
  empty = items.Item('n', 'f', text, (('', 'f()'),))  # says TypeError only
  lines = []
  made, numbers = catalogue.build([good, empty], lines.append)
  # x - 1, x + 2, x + 0 fail the tests; there is no other name to take.
  assert [bug[:1] + bug[4:] for bug in made['bugs']] == [
    ['m.f', '-', 2, len(made['items']['m.f']['cases']), 1],
    ['m.f', '0', 2, len(made['items']['m.f']['cases']), 2],
    ['m.f', '2', 2, len(made['items']['m.f']['cases']), 2],
  ]
  assert (numbers['tried'], numbers['kept'], numbers['yield']) == (3, 3, 1.0)
  assert lines == ['m.f: 3 of 3', 'n.f: 0 of 0']
  # x - 0 and x - 2; 0 and 2 stand in one place.
  both = [first[3] + second[3] for _, first, second, *_ in made['pairs']]
  assert sorted(both) == ['-0', '-2'] and numbers['pairs'] == 2
  path = tmp_path / 'repairs.json'
  path.write_text(catalogue.dump(made))
  assert catalogue.load(str(path)) == json.loads(json.dumps(made))


def test_bugs_that_no_visible_test_notices_are_left_out():
  text = 'def f(x):\n  return 0 if x < 0 else x\n'
  item = items.Item('m', 'f', text, (('', 'f(3)'),))
  _, good, count = catalogue.of_item(item)
  assert count['unnoticed'] > 0
  # f(3) is 3 still if `x < 0` becomes `x <= 0`.
  assert '<=' not in {bug[4] for bug in good}


@pytest.mark.parametrize(
  'text', ['', '[]', '{"items":{},"bugs":[],"pairs":[]}']
)
def test_what_is_no_catalogue_is_an_error(text, tmp_path):
  path = tmp_path / 'x.json'
  path.write_text(text)
  with pytest.raises(ValueError, match='make_repairs'):
    catalogue.load(str(path))
  with pytest.raises(ValueError, match='make_repairs'):
    catalogue.load(str(tmp_path / 'none.json'))
