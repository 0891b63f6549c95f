"""Reports are verified claim by claim, against the rule of evidence."""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import contract, research, scripted, search_corpus


def document(title, source, year, *claims):
  return search_corpus.Document(title, source, year, claims)


# d1 is outdone by d0; d3 by nothing; d4 repeats d3's fact, of less weight.
DOCUMENTS = (
  document('Arvo', 'registry', 2010, 'seat of Arvo: Kobe'),
  document('Arvo', 'forum', 2024, 'seat of Arvo: Turin'),
  document('Kobe', 'paper', 2012, 'mayor of Kobe: Rosa Silva'),
  document('Arvo', 'paper', 2012, 'founder of Arvo: Lena Holm'),
  document('Arvo', 'paper', 2011, 'founder of Arvo: Lena Holm'),
)
SEAT, MAYOR = 'seat of Arvo: Kobe [d0]', 'mayor of Kobe: Rosa Silva [d2]'


def check(*lines, topics=('seat',)):
  found = research.check('\n'.join(lines), DOCUMENTS, 'Arvo', topics)
  return found.needed, found.proved, found.false, found.other, found.right


@pytest.mark.parametrize(
  'lines, topics, expected',
  [
    ([SEAT], ['seat'], (1, 1, 0, 0, True)),
    ([SEAT, SEAT], ['seat'], (1, 1, 0, 0, True)),  # said twice
    ([SEAT, '', '  '], ['seat'], (1, 1, 0, 0, True)),
    ([], ['seat'], (1, 0, 0, 0, False)),
    (['seat of Arvo: Kobe'], ['seat'], (1, 0, 0, 1, False)),  # no source
    (['seat of Arvo: Kobe [d2]'], ['seat'], (1, 0, 1, 0, False)),
    (['seat of Arvo: Turin [d1]'], ['seat'], (1, 0, 1, 0, False)),  # outdone
    (['seat of Arvo: Kobe [d99]'], ['seat'], (1, 0, 1, 0, False)),
    ([SEAT, 'seat of Arvo: Turin [d1]'], ['seat'], (1, 1, 1, 0, False)),
    ([SEAT, 'It is nice there.'], ['seat'], (1, 1, 0, 1, False)),
    # A chain needs each hop; what was not asked for is welcome if true.
    ([MAYOR], ['mayor of its seat'], (2, 1, 0, 0, False)),
    ([MAYOR, SEAT], ['mayor of its seat'], (2, 2, 0, 0, True)),
    ([SEAT, MAYOR], ['seat'], (1, 1, 0, 0, True)),
    # Two topics that share a fact need it once.
    ([SEAT, MAYOR], ['seat', 'mayor of its seat'], (2, 2, 0, 0, True)),
    # Only the document with the highest authority proves.
    (['founder of Arvo: Lena Holm [d3]'], ['founder'], (1, 1, 0, 0, True)),
    (['founder of Arvo: Lena Holm [d4]'], ['founder'], (1, 0, 1, 0, False)),
  ],
)
def test_a_report_is_counted_claim_by_claim(lines, topics, expected):
  assert check(*lines, topics=topics) == expected


def test_a_flood_of_lines_is_no_report():
  assert not check(*[SEAT] * 17)[-1]


@pytest.mark.parametrize(
  'options', [{}, {'topics': (4,), 'disputed': 1.0}, {'topics': (1,)}]
)
def test_contract(options):
  contract.check_env('research', num_tasks=2, **options)


def test_the_oracle_proves_everything_on_many_tasks():
  for seed in range(100):
    data = research.generate(seed, topics=(4,), disputed=1.0)
    task = types.Task('research', 'test', seed, data)
    agent = research.ResearchEnv.oracle(task)
    assert scripted.play(research.ResearchEnv(), task, agent)[1] == 1.0, data


def test_each_mistake_costs_something():
  for kind in ('first_hit', 'no_source', 'leave_out'):
    total = 0.0
    for seed in range(40):
      data = research.generate(seed, disputed=1.0)
      task = types.Task('research', 'test', seed, data)
      agent = research.ResearchEnv.agent(task, seed=seed, rates={kind: 1.0})
      total += scripted.play(research.ResearchEnv(), task, agent)[1]
    assert total <= 12, kind


def test_the_end_says_how_many_claims_were_proved():
  data = research.generate(1, topics=(2,))
  env = research.ResearchEnv()
  env.reset(types.Task('research', 'test', 1, data))
  result = env.step(types.Action('nothing [d0]'))
  assert result.done and result.reward == 0.0
  assert result.info['measures'] == {'claims_proved': 0.0, 'claims_false': 1.0}
  assert env.verdict().false == 1


@pytest.mark.parametrize('topics', [(), (0,), (5,), (1, 9)])
def test_impossible_options_are_errors(topics):
  with pytest.raises(ValueError, match='topics'):
    research.generate(0, topics=topics)
