"""Can an agent write a short report in which every claim is cited and true?

The deep-research variant of `search`: several questions on one firm, no
`cite` and no `answer`. The turn without calls is the report, a claim a line
with its document, and it is checked claim by claim.
"""

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import scripted, search, search_corpus

# Chains of relations of a firm that a report may be asked for.
TOPICS = {
  'founder': ('founder',),
  'seat': ('seat',),
  'opening': ('opening',),
  "founder's birthplace": ('founder', 'birthplace'),
  "founder's birth year": ('founder', 'birth year'),
  'mayor of its seat': ('seat', 'mayor'),
}
TASK_DEFAULTS = {
  'topics': (2, 3),  # of a report, 1-4
  'disputed': 0.5,  # P(a fact is contradicted by another document)
  'corpora': search_corpus.CORPORA,  # that reports are about, 1-64
}
_LINE = re.compile(r'(.+?) \[d(\d{1,4})\]', re.ASCII)
_MAX_LINES = 16


def generate(
  seed: int,
  *,
  topics: Sequence[int] = TASK_DEFAULTS['topics'],
  disputed: float = TASK_DEFAULTS['disputed'],
  corpora: int = TASK_DEFAULTS['corpora'],
) -> dict[str, Any]:
  """Draws a corpus and what a report has to say.

  Returns:
    `corpus` and `disputed` (arguments of `search_corpus.corpus`), `firm`,
    `topics` (keys of `TOPICS`).

  Raises:
    ValueError: an option out of its range.
  """
  if not topics or not set(topics) <= {1, 2, 3, 4}:
    raise ValueError(f'topics={topics}: give some of 1, 2, 3, 4')
  base = search_corpus.generate(seed, disputed=disputed, corpora=corpora)
  draw = random.Random(f'report {seed}')
  chosen = draw.sample(sorted(TOPICS), draw.choice(tuple(topics)))
  kept = {name: base[name] for name in ('corpus', 'disputed', 'firm')}
  return {**kept, 'topics': chosen}


@dataclasses.dataclass(frozen=True)
class Verdict:
  """What a report is worth, counted over claims.

  Attributes:
    needed: facts that the topics ask for.
    proved: of those, told with a document that is to be believed and says so.
    false: lines whose document does not say that, or is outdone by another.
    other: lines that are no claim with a citation.
  """

  needed: int
  proved: int
  false: int
  other: int

  @property
  def right(self) -> bool:
    """Whole and free of falsehood."""
    return self.proved == self.needed and not self.false + self.other


def check(
  report: str,
  documents: Sequence[search_corpus.Document],
  firm: str,
  topics: Sequence[str],
) -> Verdict:
  """Verifies a report claim by claim.

  Args:
    report: lines 'relation of subject: value [dN]'.
    documents: the corpus.
    firm: the subject.
    topics: keys of `TOPICS`.
  """
  needed = {}
  for topic in topics:
    for told, _, proofs in search_corpus.chain(documents, firm, TOPICS[topic]):
      needed[told] = proofs
  proved, false, other = set(), 0, 0
  lines = [line.strip() for line in report.splitlines() if line.strip()]
  for line in lines[:_MAX_LINES]:
    found = _LINE.fullmatch(line)
    if found is None:
      other += 1
    elif _is_true(found[1], int(found[2]), documents):
      proved.update({found[1]} & set(needed))
    else:
      false += 1
  other += len(lines[_MAX_LINES:])
  return Verdict(len(needed), len(proved), false, other)


def _is_true(claim: str, number: int, documents) -> bool:
  """Whether a document says a claim, and none that counts more denies it."""
  if number >= len(documents) or claim not in documents[number].claims:
    return False
  relation, _, rest = claim.partition(' of ')
  subject = rest.partition(': ')[0]
  value, proofs = search_corpus.believed(documents, relation, subject)
  return value == search_corpus.value(claim) and number in proofs


class ResearchEnv(search.SearchEnv):
  """Search, open, write the report."""

  tools = tuple(
    tool
    for tool in search.TOOLS
    if tool['function']['name'] in ('search', 'open')
  )
  system = (
    f'You research with tools. {search.RULE} Report a line a claim, with its '
    'document: claim [d1].'
  )
  revealing = ('search', 'open')
  task_defaults = TASK_DEFAULTS
  generate = staticmethod(generate)
  rates = {
    'first_hit': 0.25,  # believes the first document that says something
    'no_source': 0.1,  # of a claim
    'leave_out': 0.1,  # a topic
    'malformed': 0.01,
  }
  card = dataclasses.replace(
    search.SearchEnv.card,
    action='search, open, then the report',
    reward='1 if every claim asked for is cited and true, and no other false',
    termination='the report',
    oracle='weighs all hits, cites the best',
    state_key='opened, last reply',
  )

  def __init__(self):
    super().__init__()
    self._verdict = None

  @staticmethod
  def level(data: Mapping[str, Any]) -> int:
    """Topics of the report."""
    return len(data['topics'])

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Topic by topic; a fact that is known already is not searched again."""
    del prompt
    known, lines = {}, []
    for topic in task.data['topics']:
      if agent.errs('leave_out'):
        continue
      subject = task.data['firm']
      for relation in TOPICS[topic]:
        if (relation, subject) not in known:
          name, told = yield from search.look_up(agent, relation, subject)
          if not name:
            break
          known[relation, subject] = told
          sourced = not agent.errs('no_source')
          lines.append(f'{told} [{name}]' if sourced else told)
        subject = search_corpus.value(known[relation, subject])
    yield types.Action('\n'.join(lines))

  def verdict(self) -> Verdict | None:
    """What the report was found to be worth; None before it."""
    return self._verdict

  def step(self, action: types.Action) -> types.StepResult:
    """As every environment; the end says how many claims were proved."""
    result = super().step(action)
    if self._verdict is None:
      return result
    measures = {
      'claims_proved': self._verdict.proved / self._verdict.needed,
      'claims_false': float(self._verdict.false),
    }
    info = {**result.info, 'measures': measures}
    return dataclasses.replace(result, info=info)

  def _start(self, task: types.Task, sample: int) -> str:
    del sample
    data = task.data
    self._where = data['corpus'], data['disputed']
    self._firm, self._topics = data['firm'], list(data['topics'])
    self._opened, self._cited = set(), set()
    self._acquire()
    return f'Report on {self._firm}: {", ".join(self._topics)}.'

  def state_key(self) -> str | None:
    """What was opened, and the last reply."""
    opened = ' '.join(sorted(self._opened)) or '-'
    return f'opened {opened}\n{self._last}'

  def _judge(self, text: str) -> float:
    self._verdict = check(text, self._documents, self._firm, self._topics)
    return float(self._verdict.right)
