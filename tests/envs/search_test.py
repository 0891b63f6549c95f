"""The rule of evidence finds the truth; answers without proof earn nothing."""

import pytest

from agentrl_jax import types
from agentrl_jax.envs import contract, scripted, search, search_corpus

CORPUS = search_corpus.corpus(3, 1.0)


@pytest.mark.parametrize('options', [{}, {'hops': (2,), 'disputed': 1.0}])
def test_contract(options):
  contract.check_env('search', num_tasks=2, **options)


def test_authority_is_source_first_then_date():
  def document(source, year, value):
    return search_corpus.Document('A', source, year, (f'seat of A: {value}',))

  documents = (
    document('forum', 2024, 'Kobe'),
    document('paper', 2012, 'Turin'),
    document('paper', 2011, 'Cadiz'),
    document('paper', 2012, 'Turin'),
  )
  found = search_corpus.believed(documents, 'seat', 'A')
  assert found == ('Turin', (1, 3))
  assert search_corpus.believed(documents, 'mayor', 'A') == ('', ())
  registry = document('registry', 1999, 'Oslo')
  found = search_corpus.believed((*documents, registry), 'seat', 'A')
  assert found == ('Oslo', (4,))


def test_every_fact_is_disputed_and_the_whole_document_is_right():
  for document in CORPUS:
    for told in document.claims:
      head, _, value = told.rpartition(': ')
      relation, _, subject = head.partition(' of ')
      best, proofs = search_corpus.believed(CORPUS, relation, subject)
      said = {
        claim
        for other in CORPUS
        for claim in other.claims
        if claim.startswith(f'{head}: ')
      }
      assert len(said) == 2
      assert len(proofs) == 1
      whole = CORPUS[proofs[0]]
      assert len(whole.claims) > 1 or relation == 'mayor'
      assert (best == value) == (document == whole)


def find(relation, firm='Arvo'):
  """A fact's claim, its proof, and a document that contradicts it."""
  ((claim, value, (proof,)),) = search_corpus.chain(CORPUS, firm, [relation])
  head = claim[: -len(value)]
  ((liar, lie),) = [
    (number, told)
    for number, document in enumerate(CORPUS)
    for told in document.claims
    if told.startswith(head) and told != claim
  ]
  return claim, value, proof, liar, lie


def play(*actions, relations=('seat',), **options):
  env = search.SearchEnv(**options)
  data = {
    'corpus': 3,
    'disputed': 1.0,
    'question': '?',
    'firm': 'Arvo',
    'relations': list(relations),
  }
  env.reset(types.Task('search', 'test', 0, data))
  for name, arguments in actions:
    result = env.step(scripted.call(name, **arguments))
  return result, env


def cite(number, claim):
  return 'cite', {'doc': f'd{number}', 'claim': claim}


def test_the_reward_asks_for_the_right_source():
  claim, value, proof, liar, lie = find('seat')
  right, wrong = ('answer', {'value': value}), ('answer', {'value': 'Oslo'})
  assert play(cite(proof, claim), right)[0].reward == 1.0
  assert play(cite(proof, claim), wrong)[0].reward == 0.0
  assert play(cite(liar, lie), right)[0].reward == 0.0
  assert play(right)[0].reward == 0.0
  assert play(right, citations=False)[0].reward == 1.0
  # A wrong citation beside the right one does no harm.
  assert play(cite(liar, lie), cite(proof, claim), right)[0].reward == 1.0


def test_every_hop_needs_its_proof():
  (first, _, (a,)), (second, value, (b,)) = search_corpus.chain(
    CORPUS, 'Arvo', ['founder', 'birthplace']
  )
  answer = 'answer', {'value': value}
  given = {'relations': ('founder', 'birthplace')}
  result, env = play(cite(a, first), answer, **given)
  assert (env.proved(), result.reward) == ([True, False], 0.0)
  result, env = play(cite(a, first), cite(b, second), answer, **given)
  assert (env.proved(), result.reward) == ([True, True], 1.0)


@pytest.mark.parametrize(
  'name, arguments, reply',
  [
    ('open', {'doc': 'd999'}, 'no document d999'),
    ('open', {'doc': 'x'}, 'no document x'),
    ('cite', {'doc': 'd0', 'claim': 'seat of Arvo: Rome'}, 'not say that'),
    ('search', {'query': '?!'}, 'search for words'),
    ('search', {'query': 'nothing'}, 'no hits'),
    ('search', {'query': '" OR NEAR( *'}, 'no hits'),
  ],
)
def test_replies(name, arguments, reply):
  result, _ = play((name, arguments))
  assert reply in result.observation.messages[0].content


def test_the_believed_document_is_among_the_hits_of_every_question():
  for index in range(150):
    data = search_corpus.generate(index, disputed=1.0)
    task = types.Task('search', 'test', index, data)
    oracle = search.SearchEnv.oracle(task)
    assert scripted.play(search.SearchEnv(), task, oracle)[1] == 1.0, data


@pytest.mark.parametrize(
  'options', [{'hops': (3,)}, {'disputed': 2}, {'corpora': 65}]
)
def test_impossible_options_are_errors(options):
  with pytest.raises(ValueError, match='give'):
    search_corpus.generate(0, **options)
