"""Can an agent find out who is right, and prove it?

Full-text search (SQLite FTS5) over documents that contradict each other. The
reward asks for the right answer and, for every fact that leads to it, a
citation of a document that says so and that the rule of evidence believes.
"""

import dataclasses
import functools
import re
from collections.abc import Generator, Mapping
from typing import Any

from agentrl_jax import types
from agentrl_jax.envs import base, database, scripted, search_corpus

_TEXT = {'type': 'string'}
TOOLS = (
  base.function(
    'search',
    'Finds documents by words; shows id, title, source, year.',
    required=['query'],
    query=_TEXT,
  ),
  base.function('open', 'Shows a document.', required=['doc'], doc=_TEXT),
  base.function(
    'cite',
    'Cites a document for a claim, as it stands there.',
    required=['doc', 'claim'],
    doc=_TEXT,
    claim=_TEXT,
  ),
  base.function('answer', 'Answers and ends.', required=['value'], value=_TEXT),
)
RULE = 'registry beats paper beats forum; then newer beats older.'
HITS = 5
MAX_CITATIONS = 8
_WORD = re.compile(r'\w+')


@functools.lru_cache(maxsize=search_corpus.CORPORA)
def _index(seed: int, disputed: float) -> bytes:
  """The full-text index of a corpus, serialized."""
  told = [
    (number, document.title, '. '.join(document.claims))
    for number, document in enumerate(search_corpus.corpus(seed, disputed))
  ]

  def fill(index):
    index.execute('CREATE VIRTUAL TABLE documents USING fts5(title, text)')
    index.executemany(
      'INSERT INTO documents(rowid, title, text) VALUES(?, ?, ?)', told
    )

  return database.packed(fill)


class SearchEnv(database.DatabaseEnv):
  """Search, open, cite, answer.

  Args:
    citations: whether the reward asks for proof of every hop.
  """

  tools = TOOLS
  system = f'You find facts with tools. {RULE}'
  revealing = ('search', 'open', 'cite', 'answer')
  task_defaults = search_corpus.TASK_DEFAULTS
  generate = staticmethod(search_corpus.generate)
  disjoint_splits = True  # some questions recur
  held = ('_database', '_documents')
  rates = {
    'first_hit': 0.4,  # believes the first document that says something
    'no_citation': 0.15,  # of a hop
    'malformed': 0.01,
  }
  card = base.Card(
    observation='hits with source and year; a document',
    action='search, open, cite, answer',
    reward='1 if the answer is right and every hop proved',
    termination='answered, final answer',
    oracle='weighs all hits, cites the best',
    state_key='opened, cited, last reply',
  )

  def __init__(self, *, citations: bool = True):
    super().__init__()
    self._citations = citations

  def state_key(self) -> str | None:
    """What was opened, in which documents claims were cited, last reply."""
    opened = ' '.join(sorted(self._opened)) or '-'
    cited = '; '.join(sorted(f'{d} {c}' for d, c in self._cited)) or '-'
    return f'opened {opened}\ncited {cited}\n{self._last}'

  @staticmethod
  def level(data: Mapping[str, Any]) -> int:
    """Facts that the question chains."""
    return len(data['relations'])

  @classmethod
  def hidden_sibling(cls, task: types.Task) -> types.Task | None:
    """The same question over another corpus."""
    other = (task.data['corpus'] + 1) % search_corpus.CORPORA
    return dataclasses.replace(task, data={**task.data, 'corpus': other})

  @staticmethod
  def script(
    task: types.Task, agent: scripted.Agent, prompt: str
  ) -> scripted.Script:
    """Hop by hop: searches, opens by authority, cites, goes on."""
    del prompt
    subject = task.data['firm']
    for relation in task.data['relations']:
      name, told = yield from look_up(agent, relation, subject)
      if not name:
        return  # nothing of it among the hits
      if not agent.errs('no_citation'):
        yield scripted.call('cite', doc=name, claim=told)
      subject = search_corpus.value(told)
    yield scripted.call('answer', value=subject)

  def call_search(self, arguments: Mapping[str, Any]) -> str:
    """Ranks documents by any of the words."""
    words = _WORD.findall(arguments['query'][:200])[:12]
    if not words:
      raise base.ToolError('search for words')
    rows = self._database.execute(
      'SELECT rowid FROM documents WHERE documents MATCH ? '
      'ORDER BY rank, rowid LIMIT ?',
      (' OR '.join(f'"{word}"' for word in words), HITS),
    ).fetchall()
    return '\n'.join(self._title(number) for (number,) in rows) or 'no hits'

  def call_open(self, arguments: Mapping[str, Any]) -> str:
    """Shows what a document claims."""
    number = self._number(arguments)
    self._opened.add(f'd{number}')
    claims = self._documents[number].claims
    return '\n'.join((self._title(number), *claims))

  def call_cite(self, arguments: Mapping[str, Any]) -> str:
    """Adds a citation; what it proves is judged at the end."""
    number = self._number(arguments)
    if arguments['claim'] not in self._documents[number].claims:
      raise base.ToolError(f'd{number} does not say that')
    if len(self._cited) >= MAX_CITATIONS:
      raise base.ToolError(f'at most {MAX_CITATIONS} citations')
    self._cited.add((f'd{number}', arguments['claim']))
    return 'cited'

  def call_answer(self, arguments: Mapping[str, Any]) -> str:
    """Answers; whether it was right shows in the reward only."""
    self._answered = arguments['value']
    self._done = True
    return 'answered'

  def proved(self) -> list[bool]:
    """For each hop, whether a believed source was cited. Not for the agent."""
    return [
      any((f'd{number}', claim) in self._cited for number in proofs)
      for claim, _, proofs in self._chain()
    ]

  def _start(self, task: types.Task, sample: int) -> str:
    del sample
    data = task.data
    self._where = data['corpus'], data['disputed']
    self._firm, self._relations = data['firm'], list(data['relations'])
    self._opened, self._cited, self._answered = set(), set(), ''
    self._acquire()
    return data['question']

  def _acquire(self) -> None:
    self._documents = search_corpus.corpus(*self._where)
    super()._acquire()

  def _blob(self) -> bytes:
    return _index(*self._where)

  def _judge(self, text: str) -> float:
    del text
    right = self._answered.strip().casefold() == (
      self._chain()[-1][1].casefold()
    )
    return float(right and (not self._citations or all(self.proved())))

  def _chain(self) -> list[tuple[str, str, tuple[int, ...]]]:
    return search_corpus.chain(self._documents, self._firm, self._relations)

  def _number(self, arguments: Mapping[str, Any]) -> int:
    """Index of a document that exists."""
    found = re.fullmatch(r'd(\d{1,4})', arguments['doc'], re.ASCII)
    if found is None or int(found[1]) >= len(self._documents):
      raise base.ToolError(f'no document {base.clip(arguments["doc"], 20)}')
    return int(found[1])

  def _title(self, number: int) -> str:
    document = self._documents[number]
    return f'd{number} {document.title} {document.source} {document.year}'


def look_up(
  agent: scripted.Agent, relation: str, subject: str
) -> Generator[types.Action, str, tuple[str, str]]:
  """Searches a fact and opens what is to be believed, until one says it.

  Returns:
    (document, claim), ('', '') if no hit says anything.
  """
  hits = yield scripted.call('search', query=f'{relation} {subject}')
  hits = [line.split(' ') for line in hits.splitlines()]
  hits = [hit for hit in hits if ' '.join(hit[1:-2]) == subject]
  if not agent.errs('first_hit'):
    order = search_corpus.SOURCES.index
    hits.sort(key=lambda hit: (order(hit[-2]), -int(hit[-1])))
  head = search_corpus.claim(relation, subject, '')
  for name, *_ in hits:
    text = yield scripted.call('open', doc=name)
    told = [line for line in text.splitlines() if line.startswith(head)]
    if told:
      return name, told[0]
  return '', ''
