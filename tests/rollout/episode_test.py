"""Token by token: what was sampled stays, what ends an episode is said."""

import pytest
import rollout_fakes as made

from agentrl_jax import types
from agentrl_jax.rollout import episode
from agentrl_jax.text import templates

Message, StopReason = types.Message, types.StopReason
OBSERVATION = types.Observation((Message('user', 'search flights'),))
CALL = '<tool_call>{"name":"search","args":{}}</tool_call>'


def start(**changes):
  game = episode.Episode(made.TASK, 2, made.language(), made.limits(**changes))
  ids = game.begin('Book.', OBSERVATION, 'start', ())
  return game, ids


def said(text, end=True):
  tokenizer = made.language().tokenizer
  ids = tokenizer.encode(text, specials=True)
  stops = templates.stop_ids(tokenizer, 'tiny')
  return [*ids, stops[0]] if end else ids


def complete(game, text, end=True, version=4):
  ids = said(text, end)
  game.complete(ids, [-0.5] * len(ids), version)
  return game.parse(stopped=end)


def reply(text='CA1501', *, done=False, reward=0.0, reason=None, **info):
  observation = types.Observation((Message('tool', text),))
  return types.StepResult(observation, reward, done, reason, info)


def messages(*turns):
  conversation = [Message('system', 'Book.'), *OBSERVATION.messages]
  for said_text, replied in turns:
    conversation.append(Message('assistant', said_text))
    if replied:
      conversation.append(Message('tool', replied))
  return conversation


def test_a_whole_episode_is_the_rendered_conversation():
  game, first = start()
  assert (
    first
    == templates.open(made.language().tokenizer, 'tiny', messages(), ()).ids
  )
  fed = list(first)
  for text, replied in (('one', 'r1'), ('two', 'r2'), ('three', '')):
    action = complete(game, text)
    assert action == types.Action(text)
    fed += said(text)[:-1]  # the sampler's cache lacks the last one
    new = game.answer(action, reply(replied, done=text == 'three'), 'next')
    fed += new
  played = game.trajectory()
  assert played.stop_reason is StopReason.DONE
  (context,) = played.contexts
  rendered = templates.render(
    made.language().tokenizer,
    'tiny',
    messages(('one', 'r1'), ('two', 'r2'), ('three', '')),
  )
  assert context.tokens == rendered.ids
  assert context.sampled_mask == rendered.sampled_mask
  # What the sampler was given is the context but for its last token.
  assert tuple(fed) == context.tokens[:-1]


def test_birth_marks_are_on_sampled_tokens_only():
  game, _ = start()
  game.answer(complete(game, 'one', version=4), reply(), 'a')
  game.answer(complete(game, 'two', version=5), reply(done=True), None)
  (context,) = game.trajectory().contexts
  for sampled, logprob, version in zip(
    context.sampled_mask, context.logprobs, context.versions
  ):
    assert logprob == (-0.5 if sampled else 0.0)
    assert (version in (4, 5)) == sampled and (version == -1) != sampled
  for turn, text in zip(game.trajectory().turns, ('one', 'two')):
    assert list(context.tokens[turn.start : turn.end]) == said(text)
    assert all(context.sampled_mask[turn.start : turn.end])
  assert sum(context.sampled_mask) == len(said('one')) + len(said('two'))


def test_turns_say_what_was_done_where_and_for_what():
  game, _ = start()
  action = complete(game, CALL)
  assert action.calls == (types.ToolCall('search', {}),)
  game.answer(action, reply('r', reward=0.25, valid=True), 'second')
  game.answer(complete(game, 'two'), reply('', done=True, reward=1.0), None)
  one, two = game.trajectory().turns
  assert (one.state_key, two.state_key) == ('start', 'second')
  assert one.observation == (Message('tool', 'r'),) and one.reward == 0.25
  assert one.calls == action.calls and one.info == {'valid': True}
  assert game.trajectory().outcome == 1.25
  assert game.trajectory().sample == 2


def test_a_prompt_that_fills_the_context_ends_it_there():
  game, ids = start(max_context=4)
  assert ids == () and game.stop_reason is StopReason.CONTEXT_FULL
  assert game.trajectory().contexts == () and game.trajectory().turns == ()


def test_a_turn_cut_by_its_budget_never_reaches_the_world():
  game, _ = start()
  assert complete(game, 'x' * 8, end=False) is None
  assert game.stop_reason is StopReason.LENGTH
  (turn,) = game.trajectory().turns
  assert turn.error and not turn.info['valid'] and turn.calls == ()
  assert turn.reward == 0.0
  context = game.trajectory().contexts[0]
  assert list(context.tokens[turn.start :]) == said('x' * 8, end=False)


def test_half_a_call_is_no_call():
  game, _ = start(max_turn_tokens=len(said(CALL, end=False)))
  assert complete(game, CALL, end=False) is None
  assert game.trajectory().turns[0].calls == ()


def test_a_turn_cut_below_its_budget_filled_the_context():
  game, _ = start()
  assert complete(game, 'xy', end=False) is None
  assert game.stop_reason is StopReason.CONTEXT_FULL


def test_a_reply_that_does_not_fit_ends_it_and_leaves_no_tokens():
  game, first = start(max_context=40)
  size = len(first) + len(said('one'))
  assert game.answer(complete(game, 'one'), reply('x' * 40), 'a') == ()
  assert game.stop_reason is StopReason.CONTEXT_FULL
  assert len(game.trajectory().contexts[0].tokens) == size
  assert game.trajectory().turns[0].observation[0].content == 'x' * 40


def test_room_for_one_token_is_room():
  _, first = start()
  action = said('one')
  new = templates.extend(
    made.language().tokenizer,
    'tiny',
    [*first, *action],
    reply().observation.messages,
  )
  size = len(first) + len(action) + len(new)
  for room, fits in ((size + 1, True), (size, False)):
    game, _ = start(max_context=room)
    assert bool(game.answer(complete(game, 'one'), reply(), 'a')) == fits


def test_malformed_turns_in_a_row_end_it():
  game, _ = start(max_turns=9)
  texts = ('<tool_call>{', 'fine', '<tool_call>{', '<tool_call>{')
  for text in texts:
    assert game.stop_reason is None
    game.answer(complete(game, text), reply(), 'a')
  assert game.stop_reason is StopReason.MALFORMED
  assert [bool(t.error) for t in game.trajectory().turns] == [1, 0, 1, 1]


def test_the_turn_budget():
  game, _ = start(max_turns=2)
  assert game.answer(complete(game, 'one'), reply(), 'a')
  assert game.answer(complete(game, 'two'), reply(), 'b') == ()
  assert game.stop_reason is StopReason.MAX_TURNS


@pytest.mark.parametrize('reason', [None, StopReason.ENV_ERROR])
def test_the_worlds_end_counts_before_any_budget(reason):
  game, _ = start(max_turns=1, malformed_limit=1)
  action = complete(game, '<tool_call>{')
  game.answer(action, reply(done=True, reason=reason), None)
  assert game.stop_reason is (reason or StopReason.DONE)


def test_a_failure_keeps_what_happened_and_why():
  game, _ = start()
  game.answer(complete(game, 'one'), reply(), 'a')
  complete(game, 'two')
  game.fail(StopReason.ENV_TIMEOUT, 'no result')
  played = game.trajectory()
  assert played.stop_reason is StopReason.ENV_TIMEOUT
  assert played.info == {'error': 'no result'} and len(played.turns) == 1


def test_an_unfinished_episode_is_aborted():
  game, _ = start()
  assert game.trajectory().stop_reason is StopReason.ABORTED


GARBAGE = [
  None,
  OBSERVATION,
  types.StepResult(None, 0.0, False),
  types.StepResult(OBSERVATION, None, False),
  types.StepResult(OBSERVATION, float('nan'), False),
  types.StepResult(OBSERVATION, 'much', False),
  types.StepResult(OBSERVATION, 0.0, False, 'done'),
  types.StepResult(OBSERVATION, 0.0, False, None, 7),
  types.StepResult(types.Observation(('text',)), 0.0, False),
  types.StepResult(types.Observation((Message('tool', None),)), 0.0, False),
  types.StepResult(types.Observation((Message('robot', ''),)), 0.0, False),
  types.StepResult(types.Observation((Message('assistant', ''),)), 0.0, False),
]


@pytest.mark.parametrize('index', range(len(GARBAGE)))
def test_what_no_environment_may_answer(index):
  with pytest.raises((TypeError, ValueError)):
    episode.checked_result(GARBAGE[index])


def test_good_answers_pass():
  good = reply(done=True, reward=1)
  assert episode.checked_result(good) is good
  assert episode.checked_observation(OBSERVATION) is OBSERVATION
  with pytest.raises(TypeError):
    episode.checked_observation('hello')
