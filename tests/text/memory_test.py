"""What a turn sees, and what becomes of a context that is rewritten."""

import pytest

from agentrl_jax import types
from agentrl_jax.text import memory, templates, tokenizer

Message = types.Message
PROMPT = (Message('system', 'a'), Message('user', 'b'))
SAID = [
  (
    Message('assistant', f'<think>t{i}</think>s{i}'),
    (Message('tool', f'r{i}'),),
  )
  for i in range(3)
]
CONVERSATION = memory.everything(PROMPT, SAID, 0)


@pytest.fixture(scope='module')
def tok():
  return tokenizer.train(['s1 r2'], vocab_size=270, style='tiny_think')


def shown(given, turns=3):
  return [m.content for m in given.messages(PROMPT, SAID[:turns])]


def test_what_is_shown_by_hand():
  t = [f'<think>t{i}</think>s{i}' for i in range(3)]
  assert shown(memory.Memory()) == [
    *('a', 'b', t[0], 'r0', t[1], 'r1', t[2], 'r2')
  ]
  assert shown(memory.Memory('window', 1)) == ['a', 'b', t[2], 'r2']
  two = memory.Memory('window', 2)
  assert shown(two) == ['a', 'b', t[1], 'r1', t[2], 'r2']
  assert shown(two, 1) == ['a', 'b', t[0], 'r0'] and shown(two, 0) == ['a', 'b']
  assert shown(memory.Memory('window', 2, 'strip')) == [
    *('a', 'b', 's1', 'r1', 's2', 'r2')
  ]


def test_what_is_said_is_the_text_without_traces():
  assert (
    memory.spoken('<think>x\ny</think>\n\ngo <think>z</think>on') == 'go on'
  )
  assert memory.spoken('go </think> <think>on') == 'go </think> <think>on'


@pytest.mark.parametrize(
  'prompt, shared',
  [([1, 2, 3, 9], 3), ([1, 2, 8, 9], 2), ([1, 2], 2), ([7], 0)],
)
def test_a_prompt_goes_on_or_drifts(prompt, shared):
  """Context 1 2 3: only the first prompt begins with it."""
  extends = shared == 3
  assert memory.advance([1, 2, 3], prompt, 'split') == (shared, not extends)
  assert memory.advance((1, 2, 3), tuple(prompt), 'mask') == (shared, False)
  assert memory.advance([1, 2, 3], prompt, 'fresh') == (shared, True)
  if extends:
    assert memory.advance([1, 2, 3], prompt, 'raise') == (3, False)
  else:
    with pytest.raises(memory.Drift):
      memory.advance([1, 2, 3], prompt, 'raise')


def test_a_drift_names_both_texts():
  was, now = map(list, ('hello there', 'hello you'))
  with pytest.raises(memory.Drift) as error:
    memory.advance(was, now, 'raise', text=''.join)
  for words in ('token 6 of 11', "'there'", "'you'", "drift='split'"):
    assert words in str(error.value)


def test_an_unknown_policy_is_refused():
  with pytest.raises(ValueError, match='allowed are split, mask, raise'):
    memory.advance([1], [1, 2], 'ignore')


def decoded(tok, tokens):
  """Text with the sampled parts in brackets."""
  out, before = '', False
  for id_, sampled in zip(tokens.ids, tokens.sampled_mask):
    out += {(0, 1): '[', (1, 0): ']'}.get((before, sampled), '')
    out += tok.decode([id_])
    before = sampled
  return (out + ']' * before).replace('<|', '').replace('|>', ' ')


def cut(tok, *fields):
  parts = memory.contexts(
    tok, 'tiny_think', CONVERSATION, memory.Memory(*fields)
  )
  short = ('tool_response>', 'r>'), ('think>', 'k>'), ('assistant', '::')
  out = []
  for part in parts:
    text = decoded(tok, part)
    for name, letters in short:
      text = text.replace(name, letters)
    out.append(text)
  return out


def test_a_window_is_a_context_a_turn(tok):
  assert cut(tok, 'window', 1) == [
    'system auser b:: [<k>t0</k>s0end ]',
    'system auser b:: <k>t0</k>s0end <r>r0</r>:: [<k>t1</k>s1end ]',
    'system auser b:: <k>t1</k>s1end <r>r1</r>:: [<k>t2</k>s2end ]',
  ]


def test_a_stripped_trace_is_learnt_where_it_was_said(tok):
  first = 'system auser b:: [<k>t0</k>s0end ]'
  second = 'system auser b:: s0end <r>r0</r>:: [<k>t1</k>s1end ]'
  third = 's0end <r>r0</r>:: s1end <r>r1</r>:: [<k>t2</k>s2end ]'
  third = f'system auser b:: {third}'
  assert cut(tok, 'append', 2, 'strip', 'split') == [first, second, third]
  # One context: what was rewritten is lost, the last turn is there.
  assert cut(tok, 'append', 2, 'strip', 'mask') == [third]
  with pytest.raises(memory.Drift, match='<think>'):
    cut(tok, 'append', 2, 'strip', 'raise')


def test_without_a_trace_nothing_drifts(tok):
  plain = [Message(m.role, memory.spoken(m.content)) for m in CONVERSATION[:-1]]
  for drift in memory.DRIFTS:
    strip = memory.Memory('append', 2, 'strip', drift)
    (context,) = memory.contexts(tok, 'tiny_think', plain, strip)
    assert context == templates.render(tok, 'tiny_think', plain)


def test_appended_it_is_the_rendered_conversation(tok):
  records = [{'role': m.role, 'content': m.content} for m in CONVERSATION]
  (context,) = memory.contexts(tok, 'tiny_think', records, memory.Memory())
  assert context == templates.render(tok, 'tiny_think', CONVERSATION)


def summary(prompt, exchanges, window):
  """Of old turns only their number stays."""
  note = Message('user', f'{len(exchanges)} turns')
  return [*prompt, note, *memory.everything((), exchanges[-window:], 0)]


def test_a_memory_of_ones_own():
  own = memory.Memory(f'{__name__}:summary', 1)
  assert shown(own, 2) == ['a', 'b', '2 turns', SAID[1][0].content, 'r1']
  with pytest.raises(ValueError, match="nearest: 'window'"):
    shown(memory.Memory('windw'))
