"""Locks: Python calls are read by `ast`, literals only, nothing evaluated."""

import pytest

from agentrl_jax import types
from agentrl_jax.text import tools

STYLE = 'chatml+python'


def test_calls_with_literals():
  text = (
    "Two things.\n[air.search(city='Zürich', stops=[1, -2.5], direct=True),\n"
    ' seat(**{"from": None}, more={"a": (1,)}, on=true)]'
  )
  assert tools.parse(text, STYLE) == types.ParseResult(
    'Two things.',
    (
      types.ToolCall(
        'air.search', {'city': 'Zürich', 'stops': [1, -2.5], 'direct': True}
      ),
      types.ToolCall('seat', {'from': None, 'more': {'a': [1]}, 'on': True}),
    ),
  )


def test_calls_are_written_as_one_list():
  calls = [types.ToolCall('f', {'a': 1, 'from': 'x'}), types.ToolCall('g')]
  text = tools.written('So.', calls, STYLE)
  assert text == "So.\n[f(a=1, **{'from': 'x'}), g()]"
  tagged = types.ToolCall('f', {'a': '</tool_call>'})
  assert tools.render_call(tagged, STYLE) == r"[f(a='\x3c/tool_call>')]"


def test_prose_with_brackets_is_an_answer():
  for text in ('See [1].', '[a, b]', 'It is [f(x)] here', '[]', '[ f]'):
    assert tools.parse(text, STYLE) == types.ParseResult(text)


FAULTS = {
  '[f(a=1)': 'was never closed',
  '[f(a="x)]': 'unterminated string',
  '[f(a=1)] so more': 'not Python: invalid syntax in line 1, character 10',
  '[f(a=1)] and more': 'not a list of calls',
  '[f(1)]': 'an argument of f has no name',
  '[f(*[1])]': 'an argument of f has no name',
  '[f(a=b)]': 'a value is no literal',
  '[f(a=1+1)]': 'a value is no literal',
  '[f(a=open("x"))]': 'a value is no literal',
  '[f(a=b"x")]': 'a value is no literal',
  '[f(a=f"{1}")]': 'a value is no literal',
  '[f(a={1})]': 'a value is no literal',
  '[f(a=1e999)]': 'a value is no literal',
  '[f(a=-1e999)]': 'a value is no literal',
  '[f(a=1j)]': 'a value is no literal',
  '[f(a=...)]': 'a value is no literal',
  '[f(a=-True)]': 'a value is no literal',
  '[f(a={1: 2})]': 'keys of a dict must be strings',
  '[f(a={**b})]': 'keys of a dict must be strings',
  '[f(**[1])]': '** in f takes a dict',
  '[f(a=1, **{"a": 2})]': '"a" is given twice',
  '[f(a=1), 2]': 'holds something else',
  '[f(a=1)(b=2)]': 'a tool is called by its name',
  '[f(a=1), *[g()]]': 'holds something else',
  '[f(a=1) for f in x]': 'not a list of calls',
  '[f(a=1)][0]': 'not a list of calls',
  '[f(a=\0)]': 'not Python: ',
  '[f(a="\ud800")]': 'not Python: ',
  '[f(a=' + '9' * 5000 + ')]': 'not Python: ',
  '[f(a=' + '[' * 5000: 'not Python: too many nested',
  '[f(a=' + '-' * 15_000 + '1)]': 'not Python: nested too deeply',
  '[f(a=1' + ' ' * 20_000 + ')]': 'more than 20000 characters',
}


@pytest.mark.parametrize('text', FAULTS, ids=lambda text: ascii(text[:30]))
def test_each_fault_says_what_was_wrong(text):
  result = tools.parse(text, STYLE)
  assert FAULTS[text] in result.error
  assert 'Write [TOOL(NAME=VALUE)]' in result.error
  assert '\n' not in result.error
  assert result.calls == ()


@pytest.mark.filterwarnings('error')
def test_odd_escapes_warn_nobody():
  result = tools.parse(r"[f(a='\d')]", STYLE)
  assert result.calls == (types.ToolCall('f', {'a': '\\d'}),)


def test_names_that_python_does_not_know_are_refused():
  for name in ('a b', 'from', 'a..b', '1f', 'ﬁ', 'f.None'):
    with pytest.raises(ValueError, match='no name of a Python function'):
      tools.render_call(types.ToolCall(name), STYLE)
