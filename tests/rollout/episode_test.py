"""Token by token: what was sampled stays, what ends an episode is said."""

import dataclasses

import pytest
import rollout_fakes as made

from agentrl_jax import types
from agentrl_jax.rollout import episode, truncation
from agentrl_jax.text import memory, templates

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


LONG = types.Observation((Message('user', 'search flights ' * 40),))


def open_long(observation=LONG, **changes):
  limits = made.limits(max_context=64, **changes)
  game = episode.Episode(made.TASK, 2, made.language(), limits)
  return game, game.begin('Book.', observation, 'start', ())


def test_a_long_prompt_is_dropped_unless_the_limits_say_otherwise():
  game, ids = open_long()
  assert ids == () and game.stop_reason is StopReason.CONTEXT_FULL


def test_a_long_prompt_is_refused_with_its_size_and_what_to_change():
  with pytest.raises(truncation.TooLong) as e:
    open_long(long_prompt='refuse')
  for part in ('flight/train/0', 'max_context=64', "'truncate'"):
    assert part in str(e.value)


def test_a_long_prompt_is_cut_so_that_a_turn_fits():
  game, ids = open_long(long_prompt='truncate')
  # A character more would not fit: 8 tokens of a turn are left.
  assert 64 - 8 - 3 < len(ids) <= 64 - 8
  game.answer(complete(game, 'one'), reply(done=True), None)
  played = game.trajectory()
  system, task = played.prompt
  assert system.content == 'Book.' and task.content.endswith('characters cut]')
  rendered = templates.open(made.language().tokenizer, 'tiny', played.prompt)
  assert rendered.ids == ids == played.contexts[0].tokens[: len(ids)]
  assert played.info == {'num_cut': 1}


def test_a_prompt_whose_system_text_is_too_long_is_dropped_all_the_same():
  game = episode.Episode(
    made.TASK,
    0,
    made.language(),
    made.limits(max_context=64, long_prompt='truncate'),
  )
  assert game.begin('Book. ' * 80, OBSERVATION, None, ()) == ()
  assert game.stop_reason is StopReason.CONTEXT_FULL
  assert game.trajectory().prompt[1] == OBSERVATION.messages[0]


@pytest.mark.parametrize('name', ['append', 'window'])
def test_a_long_reply_is_cut_and_the_episode_goes_on(name):
  language = episode.Language(
    made.language().tokenizer, 'tiny', memory.Memory(name)
  )
  limits = made.limits(max_context=64, long_observation='truncate')
  game = episode.Episode(made.TASK, 2, language, limits)
  game.begin('Book.', OBSERVATION, 'start', ())
  assert game.answer(complete(game, 'one'), reply('CA1501 06:30 ' * 40), 'a')
  assert game.stop_reason is None
  game.answer(complete(game, 'two'), reply(done=True), None)
  played = game.trajectory()
  (seen,) = played.turns[0].observation
  assert seen.content.startswith('CA1501 06:30 CA')
  assert seen.content.endswith('characters cut]')
  second = played.turns[1]
  tokens = played.contexts[second.context].tokens
  assert 64 - 8 - 3 < second.start <= 64 - 8
  rendered = templates.render(
    made.language().tokenizer,
    'tiny',
    messages(('one', seen.content), ('two', '')),
  )
  assert tokens == rendered.ids
  assert played.info == {'num_cut': 1}


def test_a_reply_for_which_not_even_a_note_has_room_ends_it_whole():
  game, first = start(max_context=40, long_observation='truncate')
  text = 'x' * 40
  assert game.answer(complete(game, 'one'), reply(text), 'a') == ()
  assert game.stop_reason is StopReason.CONTEXT_FULL
  assert game.trajectory().turns[0].observation[0].content == text
  assert 'num_cut' not in game.trajectory().info


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


# Memories other than append-only: a trajectory is several contexts.

THOUGHT = '<think>hm</think>go'
SAYINGS = ('one', THOUGHT, 'two', f'{THOUGHT}{CALL}', 'three')


def remember(*fields):
  """The made-up language with another memory."""
  return dataclasses.replace(made.language(), memory=memory.Memory(*fields))


def play(*fields, texts=SAYINGS, **changes):
  """Plays an episode as the loop does; returns it with the sampler's cache."""
  limits = made.limits(**{'max_turns': 9, 'max_context': 512, **changes})
  game = episode.Episode(made.TASK, 0, remember(*fields), limits)
  new, caches = game.begin('Book.', OBSERVATION, 'start', ()), []
  cache = list(new)
  for number, text in enumerate(texts):
    action = complete(game, text, version=number)
    caches.append([*cache, *said(text)])
    cache += said(text)[:-1]  # the last is not in the cache yet
    done = number == len(texts) - 1
    new = game.answer(action, reply(f'r{number}', done=done), f'key {number}')
    if game.stop_reason is not None:
      break
    assert 0 <= game.kept <= len(cache)
    cache = [*cache[: game.kept], *new]
  return game.trajectory(), caches


def spans(played):
  return [(turn.context, turn.start, turn.end) for turn in played.turns]


MEMORIES = [
  ('append',),
  ('window', 1),
  ('window', 2),
  ('window', 2, 'strip'),
  ('append', 2, 'strip', 'split'),
  ('append', 2, 'strip', 'mask'),
]


@pytest.mark.parametrize('fields', MEMORIES)
def test_the_contexts_are_those_that_fine_tuning_shows(fields):
  played, caches = play(*fields)
  conversation = messages(*((t, f'r{i}') for i, t in enumerate(SAYINGS)))
  expected = memory.contexts(
    made.language().tokenizer, 'tiny', conversation[:-1], memory.Memory(*fields)
  )
  assert [(c.tokens, c.sampled_mask) for c in played.contexts] == [
    (tokens.ids, tokens.sampled_mask) for tokens in expected
  ]
  # What the policy saw before each turn is the context of that turn.
  for turn, cache in zip(played.turns, caches):
    if fields[-1] != 'mask':
      tokens = played.contexts[turn.context].tokens
      assert tokens[: turn.end] == tuple(cache)
  assert played.contexts[-1].tokens == tuple(caches[-1])


@pytest.mark.parametrize('fields', MEMORIES[:-1])
def test_each_turn_is_sampled_once_whatever_is_shown(fields):
  played, _ = play(*fields)
  count = 0
  for number, (turn, text) in enumerate(zip(played.turns, SAYINGS)):
    context = played.contexts[turn.context]
    span = slice(turn.start, turn.end)
    assert list(context.tokens[span]) == said(text) and turn.text == text
    assert all(context.sampled_mask[span])
    assert set(context.versions[span]) == {number}
    assert set(context.logprobs[span]) == {-0.5}
    count += turn.end - turn.start
  marks = [mark for c in played.contexts for mark in c.sampled_mask]
  assert sum(marks) == count
  assert len(played.contexts) == {'append': 1}.get(
    fields[-1], {'split': 3}.get(fields[-1], 5)
  )


def test_a_masked_turn_keeps_what_was_not_rewritten():
  played, _ = play('append', 2, 'strip', 'mask')
  (context,) = played.contexts
  tokenizer = made.language().tokenizer
  lengths = [end - start for _, start, end in spans(played)]
  # The thoughts of turns 1 and 3 went, and the turn after each came later; of
  # turn 0 all is left, of 1 and 3 nothing, of 2 all was before the next cut.
  assert [bool(length) for length in lengths] == [1, 0, 1, 0, 1]
  for turn, text in zip(played.turns, SAYINGS):
    kept = list(context.tokens[turn.start : turn.end])
    assert kept in ([], said(text)) and turn.text == text
  assert '<think>' not in tokenizer.decode(list(context.tokens))
  assert sum(context.sampled_mask) == sum(lengths)


def test_drift_that_is_forbidden_names_both_texts():
  with pytest.raises(memory.Drift, match=r"'<think>.*now it is 'go"):
    play('append', 2, 'strip', 'raise')


def test_the_world_never_sees_a_trace():
  game, _ = start()
  thought = '<think>I might write <tool_call>{ here</think>'
  action = complete(game, thought + CALL)
  assert action == types.Action(CALL, (types.ToolCall('search', {}),))
  game.answer(action, reply(done=True), None)
  assert game.trajectory().turns[0].text == thought + CALL


def test_the_budget_is_of_one_context():
  long = dict(texts=('one', 'two') * 4, max_context=48)
  assert play('append', **long)[0].stop_reason is StopReason.CONTEXT_FULL
  played, _ = play('window', 1, **long)
  assert played.stop_reason is StopReason.DONE
  assert sum(len(c.tokens) for c in played.contexts) > 48


def test_values_are_read_by_the_schemas_of_the_tools():
  """Bare text for a string parameter is text, also where it could be JSON."""
  tool = {
    'type': 'function',
    'function': {
      'name': 'f',
      'parameters': {'properties': {'x': {'type': 'string'}}},
    },
  }
  spoken = made.language()
  spoken = dataclasses.replace(spoken, style='tiny+xml')
  game = episode.Episode(made.TASK, 2, spoken, made.limits())
  game.begin('Book.', OBSERVATION, 'start', (tool,))
  action = complete(
    game,
    '<tool_call><function=f><parameter=x>5</parameter></function></tool_call>',
  )
  assert action.calls == (types.ToolCall('f', {'x': '5'}),)


@pytest.mark.parametrize('kind', ['append', 'window'])
def test_a_prompt_that_leaves_no_room_for_a_turn_is_cut_too(kind):
  language = episode.Language(
    made.language().tokenizer, 'tiny', memory.Memory(kind)
  )

  def prompts(policy):
    """Tokens before the second turn, by length of the reply."""
    out = []
    for length in range(20, 60):
      limits = made.limits(max_context=64, long_observation=policy)
      game = episode.Episode(made.TASK, 2, language, limits)
      game.begin('Book.', OBSERVATION, 'start', ())
      game.answer(complete(game, 'one'), reply('x' * length), 'a')
      if game.stop_reason is None:
        game.answer(complete(game, 'two'), reply(done=True), None)
        out.append(game.trajectory().turns[1].start)
    return out

  room = 64 - made.limits().max_turn_tokens
  assert max(prompts('truncate')) <= room < max(prompts('stop'))
