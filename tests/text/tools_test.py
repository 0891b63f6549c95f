"""Locks: what counts as a call, what each fault is called, no exceptions."""

import dataclasses
import keyword

import hypothesis
import pytest
from hypothesis import strategies as st

from agentrl_jax import types
from agentrl_jax.text import chat, tools
from agentrl_jax.text.calls import CALLS

OPEN, CLOSE = '<tool_call>', '</tool_call>'


def wrapped(body):
  return f'{OPEN}{body}{CLOSE}'


def test_a_call_in_both_spellings():
  for key in ('args', 'arguments'):
    result = tools.parse(wrapped(f'{{"name":"f","{key}":{{"a":1}}}}'), 'tiny')
    assert result == types.ParseResult('', (types.ToolCall('f', {'a': 1}),))


def test_prose_parallel_calls_and_space():
  second = wrapped('{"name":"g","args":{"x":[null]}}')
  text = f' I look.\n{OPEN}\n{{"name": "f"}}\n{CLOSE}\n{second}\n'
  result = tools.parse(text, 'chatml')
  assert result.content == ' I look.'
  assert result.error == ''
  assert [call.name for call in result.calls] == ['f', 'g']
  assert result.calls[1].arguments == {'x': [None]}


def test_no_call_is_an_answer():
  for text in ('', 'Done.', '{"name":"f"}', 'a < b'):
    assert tools.parse(text, 'tiny') == types.ParseResult(text)


FAULTS = {
  f'{OPEN}{{"name":"f","args":{{': 'cut off',
  f'{OPEN}{{"name":"f"': 'cut off',
  OPEN: 'cut off',
  f'{OPEN}{{"name":"f"}}': 'closing tag is missing',
  wrapped('{"name":"f"}') + ' and more': 'text after a call',
  wrapped('{"name":"f"}') + OPEN: 'cut off',
  CLOSE: 'without an opening',
  CLOSE + wrapped('{"name":"f"}'): 'without an opening',
  wrapped('{"name":"f",}'): 'not JSON: ',
  wrapped("{'name':'f'}"): 'at character 1',
  wrapped('f(x=1)'): 'expecting value at character 0',
  wrapped('{"name":"f"} x'): 'extra text after the object',
  wrapped('{"name":"f","args":{"x":NaN}}'): 'NaN is not',
  wrapped('[1]'): 'a list, not an object',
  wrapped('null'): 'a null, not an object',
  wrapped('{"args":{}}'): 'tool name is missing',
  wrapped('{"name":7}'): 'tool name is missing',
  wrapped('{"name":"f","args":[1]}'): 'args are a list',
  wrapped('{"name":"f","args":"{}"}'): 'args are a string',
  wrapped('{"name":"f","id":1}'): 'unknown key "id"',
  wrapped('{"name":"f","args":{},"arguments":{}}'): 'twice',
  OPEN + '[' * 100_000: 'nested too deeply',
  OPEN + '{"name":"f","args":{"x":' + '9' * 5000 + '}}' + CLOSE: 'not JSON',
}


@pytest.mark.parametrize('text', FAULTS, ids=lambda text: text[:40])
def test_each_fault_says_what_was_wrong_and_how_it_should_look(text):
  result = tools.parse('Hm. ' + text, 'tiny')
  assert FAULTS[text] in result.error
  assert '{"name":"TOOL","args":{...}}' in result.error
  assert '\n' not in result.error
  assert result.calls == ()


def test_one_bad_call_executes_none():
  text = wrapped('{"name":"f"}') + wrapped('{"name":')
  assert tools.parse(text, 'tiny').calls == ()


json_values = st.recursive(
  st.none()
  | st.booleans()
  | st.integers(-(2**53), 2**53)
  | st.floats(allow_nan=False, allow_infinity=False)
  | st.text()
  | st.sampled_from(
    [OPEN, CLOSE, '<|end|>', '<|im_end|>', '</parameter>', '\nAction: f', '1']
  ),
  lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
  ),
  max_leaves=6,
)
# Names that every notation can write; JSON takes any.
names = st.from_regex(r'[a-z][a-z0-9_]{0,9}', fullmatch=True).filter(
  lambda name: not keyword.iskeyword(name)
)
some_calls = {
  name: st.builds(
    types.ToolCall, key, st.dictionaries(argument, json_values, max_size=3)
  )
  for name, key, argument in (
    ('hermes', st.text(min_size=1), st.text()),
    ('llama', st.text(min_size=1), st.text()),
    ('xml', names, names),
    ('python', names, st.text()),
    ('react', names, st.text()),
  )
}
NAMES = [
  *sorted(chat.STYLES),
  *(f'{layout}+{name}' for layout in ('tiny_think', 'qwen3') for name in CALLS),
]


@hypothesis.given(
  st.data(),
  st.sampled_from(NAMES),
  st.sampled_from(['', 'Two things.', '<think>\nHm.\n</think>\n\n']),
)
@hypothesis.settings(deadline=None, max_examples=300)
def test_well_formed_calls_round_trip(data, name, prose):
  style = chat.style(name)
  made = data.draw(st.lists(some_calls[style.calls], min_size=1, max_size=3))
  text = tools.written(prose, made, style)
  result = tools.parse(text, style)
  assert result.error == ''
  assert list(result.calls) == made
  assert result.content == prose.rstrip()
  assert tools.written(text, made, style) == text
  tags = len(made) if style.calls in ('hermes', 'xml') else 0
  for special in set(style.specials) - {'<think>', '</think>'}:
    assert text.count(special) == (tags if special in (OPEN, CLOSE) else 0)


pieces = st.one_of(
  st.text(max_size=8),
  st.sampled_from(
    [
      *(OPEN, CLOSE, '{"name":"f","args":{', '}}', '"', ':', '\\', '\ud800'),
      *('<function=f>', '<parameter=x>', '</parameter>', '</function>', '\n'),
      *('\n[f(x=', '**{', "'", ')]', '-', '\nAction: f\n', 'Action Input: {'),
      *('<think>', '</think>', '<|python_tag|>', ';', '\n{"name"'),
    ]
  ),
)


@hypothesis.given(st.lists(pieces, max_size=12), st.sampled_from(NAMES))
@hypothesis.settings(deadline=None, max_examples=600)
def test_nothing_crashes_the_parser(parts, style):
  schemas = {'f': {'properties': {'x': {'type': ['string', 'null']}}}}
  tool = {'function': {'name': 'f', 'parameters': schemas['f']}}
  for known in ((), (tool,)):
    result = tools.parse(''.join(parts), style, known)
    assert not (result.error and result.calls)
    assert '\n' not in result.error
    for call in result.calls:
      assert tools.validate_call(call, schemas) or call.name == 'f'


def test_reasoning_holds_no_calls():
  inside = wrapped('{"name":"f"}')
  result = tools.parse(f'<think>{inside}</think>{inside}', 'qwen3')
  assert [call.name for call in result.calls] == ['f']
  assert result.content == f'<think>{inside}</think>'
  assert tools.parse(f'<think>{inside}</think>So.', 'qwen3').calls == ()
  cut = tools.parse(f'<think>{inside}', 'tiny_think')
  assert 'the reasoning never ends' in cut.error
  assert len(tools.parse(inside + '<think>', 'tiny').error) > 0


def test_demonstrated_calls_are_translated():
  shown = 'So.' + wrapped('{"name":"f","args":{"a":1}}')
  call = types.ToolCall('f', {'a': 1})
  assert tools.written(shown, [call]) == shown
  assert tools.written('So.', (), 'tiny+python') == 'So.'
  assert tools.translated(shown, 'tiny') == shown
  assert tools.translated(shown, 'tiny+python') == 'So.\n[f(a=1)]'
  for text in ('So.', wrapped('{"name":')):
    assert tools.translated(text, 'tiny+python') == text


def test_an_unknown_notation_is_named():
  with pytest.raises(ValueError, match="did you mean 'python'"):
    tools.parse('', 'tiny+pyhton')
  with pytest.raises(ValueError, match="did you mean 'tiny'"):
    tools.parse('', 'tinny+xml')
  style = dataclasses.replace(chat.STYLES['tiny'], calls='hermse')
  with pytest.raises(ValueError, match="did you mean 'hermes'"):
    tools.parse('', style)


def test_render_is_compact_and_refuses_what_is_not_json():
  call = types.ToolCall('f', {'a': 'é'})
  assert tools.render_call(call) == wrapped('{"name":"f","args":{"a":"é"}}')
  assert tools.render_call(call, 'chatml') == wrapped(
    '\n{"name": "f", "arguments": {"a": "é"}}\n'
  )
  for value in ({1}, float('nan')):
    with pytest.raises(ValueError):
      tools.render_call(types.ToolCall('f', {'a': value}))


@pytest.mark.parametrize('style', NAMES)
def test_error_texts_cover_the_usual_faults(style):
  texts = tools.error_texts(style)
  assert len(set(texts)) == len(texts) >= 6
  assert all(text.startswith('malformed call: ') for text in texts)


@pytest.mark.parametrize(
  'body, words',
  [
    (r'{"name":"\ud83d"}', 'half of a surrogate pair'),
    (r'{"name":"f","args":{"a":["\udc00"]}}', 'half of a surrogate pair'),
    ('{"name":"f","args":{"a":1e999}}', '1e999 is too large'),
    ('{"name":"f","args":{"a":NaN}}', 'not a JSON value'),
  ],
)
def test_what_no_file_takes_is_malformed(body, words):
  parsed = tools.parse(f'<tool_call>{body}</tool_call>')
  assert not parsed.calls and words in parsed.error
  whole = r'<tool_call>{"name":"f","args":{"a":"\ud83d\ude00"}}</tool_call>'
  (call,) = tools.parse(whole).calls
  assert call.arguments == {'a': '\U0001f600'}
