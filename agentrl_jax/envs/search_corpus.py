"""What does a corpus say, who says it, and who is to be believed?

A seeded world of firms, founders and towns, told by documents with a date and
a source. Each fact is a claim, 'founder of Arvo: Lena Holm'. Where documents
disagree, the more reliable source is right, and among equals the newer one:
the corpus is written so that the truth always is what that rule finds.
"""

import dataclasses
import functools
import random
from collections.abc import Sequence
from typing import Any

FIRMS = (
  'Arvo', 'Belux', 'Cirta', 'Dorel', 'Elmo', 'Faro', 'Gavia', 'Hexa',
  'Ilmar', 'Jura', 'Kelda', 'Lumo',
)  # fmt: skip
FOUNDERS = tuple(
  f'{first} {last}'
  for first in ('Lena', 'Omar', 'Rosa', 'Taro')
  for last in ('Holm', 'Keita', 'Silva')
)
TOWNS = ('Bergen', 'Cadiz', 'Dakar', 'Galway', 'Kobe', 'Salta', 'Turin')
YEARS = tuple(range(1950, 1990))
SOURCES = ('registry', 'paper', 'forum')  # the most reliable first
CORPORA = 64  # different ones
TASK_DEFAULTS = {
  'hops': (1, 2),  # facts that a question chains, 1-2
  'disputed': 0.5,  # P(a fact is contradicted by another document)
  'corpora': CORPORA,  # that questions are about, 1-64
}
# Relation of a firm, then of its founder or seat: how questions put them.
_ONE = {
  'founder': 'Who founded {0}?',
  'seat': 'Where is {0} seated?',
  'opening': 'When did {0} open?',
}
_TWO = {
  ('founder', 'birthplace'): 'Where was the founder of {0} born?',
  ('founder', 'birth year'): 'When was the founder of {0} born?',
  ('seat', 'mayor'): 'Who is mayor of the town where {0} is seated?',
}


@dataclasses.dataclass(frozen=True)
class Document:
  """What one source said on one date."""

  title: str
  source: str
  year: int
  claims: tuple[str, ...]

  def authority(self) -> tuple[int, int]:
    """Higher is to be believed: by source, then by date."""
    return -SOURCES.index(self.source), self.year


def claim(relation: str, subject: str, value: Any) -> str:
  """Writes a fact as documents do."""
  return f'{relation} of {subject}: {value}'


def value(told: str) -> str:
  """The end of a claim: what it says of its subject."""
  return told.partition(': ')[2]


@functools.lru_cache(maxsize=CORPORA)
def corpus(seed: int, disputed: float) -> tuple[Document, ...]:
  """Writes a corpus; document n has the id `d{n}`.

  Args:
    seed: of the world and of what is told.
    disputed: probability that a fact is contradicted elsewhere.
  """
  draw = random.Random(f'corpus {seed}')
  facts = {}
  for firm in FIRMS:
    facts['founder', firm] = draw.choice(FOUNDERS)
    facts['seat', firm] = draw.choice(TOWNS)
    facts['opening', firm] = draw.choice(YEARS)
  for person in FOUNDERS:
    facts['birthplace', person] = draw.choice(TOWNS)
    facts['birth year', person] = draw.choice(YEARS)
  mayors = draw.sample(FOUNDERS, len(TOWNS))
  facts |= {('mayor', town): who for town, who in zip(TOWNS, mayors)}
  values_of, subjects = {}, {}
  for (relation, subject), value in facts.items():
    values_of.setdefault(relation, set()).add(value)
    subjects.setdefault(subject, {})[relation] = value
  documents = []
  for subject, known in subjects.items():
    source = draw.choice(SOURCES[:2])
    year = draw.randint(2005, 2020)
    told = tuple(claim(r, subject, value) for r, value in known.items())
    documents.append(Document(subject, source, year, told))
    for relation, value in known.items():
      if draw.random() >= disputed:
        continue
      other = draw.choice(sorted(values_of[relation] - {value}))
      told = (claim(relation, subject, other),)
      documents.append(Document(subject, *_outdone(draw, source, year), told))
  draw.shuffle(documents)
  return tuple(documents)


def _outdone(draw: random.Random, source: str, year: int) -> tuple[str, int]:
  """A source and year that count for less: weaker of any date, or older."""
  if draw.random() < 0.5:
    return source, year - draw.randint(1, 4)
  weaker = SOURCES[SOURCES.index(source) + 1 :]
  return draw.choice(weaker), draw.randint(2005, 2024)


def believed(
  documents: Sequence[Document], relation: str, subject: str
) -> tuple[str, tuple[int, ...]]:
  """Weighs what documents say of a fact.

  Returns:
    The value of the most reliable, then newest document, and the indices of
    those with that authority that say it; ('', ()) if none says anything.
  """
  head = claim(relation, subject, '')
  said = [
    (document.authority(), number, told[len(head) :])
    for number, document in enumerate(documents)
    for told in document.claims
    if told.startswith(head)
  ]
  if not said:
    return '', ()
  best = max(authority for authority, _, _ in said)
  top = [
    (number, value) for authority, number, value in said if authority == best
  ]
  return top[0][1], tuple(number for number, _ in top)


def generate(
  seed: int,
  *,
  hops: Sequence[int] = TASK_DEFAULTS['hops'],
  disputed: float = TASK_DEFAULTS['disputed'],
  corpora: int = TASK_DEFAULTS['corpora'],
) -> dict[str, Any]:
  """Draws a corpus and a question over it.

  Returns:
    `corpus` and `disputed` (arguments of `corpus`), `question`, `firm` and
    `relations`, the facts to chain.
  """
  if not hops or set(hops) - {1, 2}:
    raise ValueError(f'hops={hops}: give some of 1, 2')
  if not 0 <= disputed <= 1:
    raise ValueError(f'disputed={disputed}: give a probability')
  if not 1 <= corpora <= CORPORA:
    raise ValueError(f'corpora={corpora}: give 1-{CORPORA}')
  draw = random.Random(seed)
  number, firm = draw.randrange(corpora), draw.choice(FIRMS)
  if draw.choice(tuple(hops)) == 1:
    relations = [draw.choice(tuple(_ONE))]
    question = _ONE[relations[0]]
  else:
    relations = list(draw.choice(tuple(_TWO)))
    question = _TWO[tuple(relations)]
  return {
    'corpus': number,
    'disputed': disputed,
    'question': question.format(firm),
    'firm': firm,
    'relations': relations,
  }


def chain(
  documents: Sequence[Document], firm: str, relations: Sequence[str]
) -> list[tuple[str, str, tuple[int, ...]]]:
  """Follows a question: (claim, value, documents that prove it) a hop."""
  found, subject = [], firm
  for relation in relations:
    value, proofs = believed(documents, relation, subject)
    found.append((claim(relation, subject, value), value, proofs))
    subject = value
  return found
