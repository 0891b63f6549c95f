"""What is asked is read exactly, and what cannot be had is refused by name."""

import json
import pathlib

import pytest
from loading import load

from agentrl_jax.gateway import questions
from agentrl_jax.text import templates

made = load(pathlib.Path(__file__).with_name('gateway_fakes.py'))
CONTEXT, MOST, fakes = made.CONTEXT, made.MOST, made.fakes
LIMITS = questions.Limits('tiny', CONTEXT, MOST)
HELLO = [{'role': 'user', 'content': 'search flights'}]
TOOL = {
  'type': 'function',
  'function': {
    'name': 'look',
    'parameters': {'type': 'object', 'properties': {}},
  },
}


def read(**body):
  tokenizer = fakes.language().tokenizer
  return questions.read({'messages': HELLO, **body}, tokenizer, 'tiny', LIMITS)


def test_the_least_question():
  asked = read()
  language = fakes.language()
  opened = templates.open(language.tokenizer, language.style, HELLO)
  assert asked == questions.Question(
    prompt=opened.ids,
    samples=1,
    temperature=1.0,
    budget=MOST,
    seed=None,
    stop=(),
    logprobs=False,
    schemas=[],
  )


def test_everything_that_can_be_asked():
  asked = read(
    model='tiny', n=3, temperature=0, max_tokens=4, seed=-5, stop='x',
    logprobs=True, stream=False, top_p=1, user='me', frequency_penalty=0.0,
  )  # fmt: skip
  assert (asked.samples, asked.temperature, asked.budget) == (3, 0.0, 4)
  assert (asked.seed, asked.stop, asked.logprobs) == (-5, ('x',), True)
  assert read(max_completion_tokens=2, max_tokens=5).budget == 2


def test_text_in_parts_and_the_newer_name_of_a_system():
  parts = [{'type': 'text', 'text': 'search '}, {'type': 'text', 'text': 'it'}]
  new = [{'role': 'developer', 'content': parts}, *HELLO]
  old = [{'role': 'system', 'content': 'search it'}, *HELLO]
  assert read(messages=new).prompt == read(messages=old).prompt


def test_calls_and_replies_are_history():
  call = {
    'id': 'call_0',
    'type': 'function',
    'function': {'name': 'look', 'arguments': '{"at": "here"}'},
  }
  told = [
    *HELLO,
    {'role': 'assistant', 'content': None, 'tool_calls': [call]},
    {'role': 'tool', 'tool_call_id': 'call_0', 'content': 'CA1501'},
  ]
  language = fakes.language()
  text = language.tokenizer.decode(read(messages=told).prompt)
  assert '{"name":"look","args":{"at":"here"}}' in text and 'CA1501' in text


def test_an_answer_never_outgrows_the_context():
  letters = 'q' * (CONTEXT - 5)  # a token each, beside the role and a header
  asked = read(messages=[{'role': 'user', 'content': letters}])
  assert 0 < CONTEXT - len(asked.prompt) < MOST
  assert asked.budget == CONTEXT - len(asked.prompt)


@pytest.mark.parametrize(
  'param, status, body',
  [
    ('messages', 400, {'messages': []}),
    ('messages', 400, {'messages': 'hello'}),
    ('messages', 400, {'messages': [{'role': 'wizard', 'content': 'x'}]}),
    ('messages', 400, {'messages': [{'role': 'user'}]}),
    ('messages', 400, {'messages': [{'role': 'user', 'content': [1]}]}),
    ('messages', 400, {'messages': ['hello']}),
    ('messages', 400, {'messages': [{'role': 'user', 'content': 'a' * 999}]}),
    ('model', 404, {'model': 'other'}),
    ('stream', 400, {'stream': True}),
    ('max_token', 400, {'max_token': 3}),
    ('min_tokens', 400, {'min_tokens': 3}),
    ('tool_choice', 400, {'tool_choice': 'none', 'tools': [TOOL]}),
    ('tools', 400, {'tools': [{'type': 'function', 'function': {}}]}),
    ('tools', 400, {'tools': '[' * 99_999}),
    ('top_p', 400, {'top_p': 0.5}),
    ('response_format', 400, {'response_format': {'type': 'json_object'}}),
    ('frequency_penalty', 400, {'frequency_penalty': 0.5}),
    ('tools', 400, {'tools': [{'name': 'look'}]}),
    ('tool_choice', 400, {'tool_choice': 'required', 'tools': [TOOL]}),
    ('max_tokens', 400, {'max_tokens': MOST + 1}),
    ('max_tokens', 400, {'max_tokens': 0}),
    ('max_completion_tokens', 400, {'max_completion_tokens': True}),
    ('n', 400, {'n': 1.5}),
    ('temperature', 400, {'temperature': -0.1}),
    ('temperature', 400, {'temperature': float('nan')}),
    ('temperature', 400, {'temperature': 'hot'}),
    ('temperature', 400, {'temperature': 10**400}),
    ('seed', 400, {'seed': 'x'}),
    ('stop', 400, {'stop': ['']}),
    ('stop', 400, {'stop': list('abcde')}),
    ('logprobs', 400, {'logprobs': 5}),
  ],
)
def test_what_cannot_be_had_is_refused_by_name(param, status, body):
  with pytest.raises(questions.Refused) as caught:
    read(**body)
  error = caught.value
  assert (error.param, error.status) == (param, status)
  told = json.loads(json.dumps(error.body()))['error']
  assert told['type'] == 'invalid_request_error' and told['message']


def test_replies_stand_in_the_order_of_their_calls():
  def told(*replies):
    calls = [
      {'id': id_, 'function': {'name': f'look_{id_}', 'arguments': '{}'}}
      for id_ in 'ab'
    ]
    answers = [
      {'role': 'tool', 'tool_call_id': id_, 'content': f'seen {id_}'}
      for id_ in replies
    ]
    asked = {'role': 'assistant', 'content': '', 'tool_calls': calls}
    body = {'messages': [*HELLO, asked, *answers]}
    limits = questions.Limits('tiny', 256, MOST)
    tokenizer = fakes.language().tokenizer
    return questions.read(body, tokenizer, 'tiny', limits).prompt

  assert told('a', 'b') == told('b', 'a') != told('a')
  with pytest.raises(questions.Refused, match='no call before has it') as e:
    told('a', 'c')
  assert e.value.param == 'messages'


@pytest.mark.parametrize('body', [None, [], 'text', 3])
def test_a_body_that_is_no_object(body):
  with pytest.raises(questions.Refused, match='not an object'):
    questions.read(body, fakes.language().tokenizer, 'tiny', LIMITS)
