"""Checks of trajectories: spans, what the sampler heard, ends, samples."""

import dataclasses

import tiny_run

from agentrl_jax.doctor import findings, listener, records

made = tiny_run.made
GOOD, BAD = findings.Status.OK, findings.Status.FAILED
# Tokens 10..17: prompt 10 11, sampled 12 13 14, reply 15, sampled 16 17.
TRAJECTORY = made.append_only([3, 2])


def with_context(**fields):
  (context,) = TRAJECTORY.contexts
  changed = dataclasses.replace(context, **fields)
  return dataclasses.replace(TRAJECTORY, contexts=(changed,))


def test_spans():
  assert records.spans([TRAJECTORY]).status is GOOD
  (context,) = TRAJECTORY.contexts
  sampled = list(context.sampled_mask)
  sampled[5] = True  # the reply
  faults = list(records.span_faults(with_context(sampled_mask=sampled)))
  assert faults == ['context 0, token 5: sampled, but in no turn']
  logprobs = (*context.logprobs[:2], 0.7, *context.logprobs[3:])
  faults = list(records.span_faults(with_context(logprobs=logprobs)))
  assert faults == ['context 0, token 2: log-prob 0.7']
  faults = list(records.span_faults(TRAJECTORY, lambda ids: 'else'))
  assert faults[0] == "turn 0 says 'turn 2', its tokens 'else'"


def heard(*streams):
  return listener.Heard(
    [listener.Stream(list(t), list(s)) for t, s in streams], []
  )


def test_the_context_is_what_the_sampler_saw():
  (context,) = TRAJECTORY.contexts
  same = (context.tokens, context.sampled_mask)
  assert records.prefix([TRAJECTORY], heard(same)).status is GOOD
  # The next context of a window may go on where this one ends.
  longer = ((*context.tokens, 18, 19), (*context.sampled_mask, False, True))
  assert records.prefix([TRAJECTORY], heard(longer)).status is GOOD
  other = ((*context.tokens[:4], 99, *context.tokens[5:]), same[1])
  finding = records.prefix([TRAJECTORY], heard(other))
  assert 'from token 4 on the sampler saw another' in finding.detail
  fewer = (context.tokens, [False] * 5 + [False] + [True] * 2)
  finding = records.prefix([TRAJECTORY], heard(fewer))
  assert 'that were not drawn' in finding.detail
  # Another episode may have had as history what this one drew.
  for both in ((same, fewer), (fewer, same)):
    assert records.prefix([TRAJECTORY], heard(*both)).status is GOOD
  assert records.prefix([TRAJECTORY], None).status not in (GOOD, BAD)


def test_ends():
  assert records.ends([TRAJECTORY], [14]).status is GOOD  # sampled
  assert records.ends([TRAJECTORY], [15]).status is GOOD  # appended
  assert 'two end tokens' in records.ends([TRAJECTORY], [14, 15]).detail
  assert 'no end token' in records.ends([TRAJECTORY], [17]).detail


def test_samples():
  one, two = made.append_only([3]), made.append_only([4])
  assert records.samples([one, two], 2, 1.0).status is GOOD
  assert records.samples([one, one], 2, 1.0).status is BAD
  greedy = records.samples([one, one], 2, 0.0)
  assert greedy.status is findings.Status.NOT_APPLICABLE


def test_a_style_that_keeps_reasoning():
  language = made.language()
  finding = records.template(language.tokenizer, language.style)
  assert finding.status is GOOD, finding


def test_what_was_drawn_before_the_environment_failed_is_in_no_turn():
  failed = dataclasses.replace(
    TRAJECTORY,
    turns=TRAJECTORY.turns[:1],
    stop_reason=made.types.StopReason.ENV_ERROR,
  )
  assert records.spans([failed]).status is GOOD
  done = dataclasses.replace(
    failed, stop_reason=made.types.StopReason.MAX_TURNS
  )
  assert records.spans([done]).status is BAD
