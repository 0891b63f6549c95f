"""Locks who reads a prompt, who copies it, and when it can be copied."""

import types

from agentrl_jax.sampler import prompts


def ask(slot, *tokens):
  return types.SimpleNamespace(slot=slot, tokens=list(tokens))


def test_the_first_reads_and_the_others_wait_until_it_has():
  known = prompts.Prompts()
  first, second, third = ask(0, 1, 2), ask(3, 1, 2), ask(1, 1)
  assert [known.follows(x) for x in (first, second, third)] == [
    False,
    True,
    False,
  ]
  assert known.take(9) == [] and known.waiting == [second]
  known.read(1)  # another prompt
  assert known.take(9) == []
  known.read(0)
  assert known.take(9) == [(second, 0)] and known.waiting == []


def test_no_more_start_than_there_are_rows():
  known = prompts.Prompts()
  known.follows(ask(0, 5))
  others = [ask(slot, 5) for slot in (1, 2, 3)]
  assert all(known.follows(x) for x in others)
  known.read(0)
  assert [x for x, _ in known.take(2)] == others[:2]
  assert [x for x, _ in known.take(2)] == others[2:]


def test_a_slot_that_is_written_gives_its_followers_back():
  known = prompts.Prompts()
  known.follows(ask(0, 5))
  known.follows(ask(7, 6))
  mine, other = ask(1, 5), ask(2, 6)
  assert known.follows(mine) and known.follows(other)
  known.read(0)
  assert known.overwrite(0) == [mine] and known.waiting == [other]
  assert known.overwrite(0) == []
  assert not known.follows(mine)  # it reads for itself now
  assert not known.follows(ask(0, 9)) and known.follows(ask(3, 9))
  assert known.take(9) == []  # of the new prompt nothing is read yet


def test_a_slot_copies_itself_where_it_holds_the_same_prompt():
  known = prompts.Prompts()
  known.follows(ask(0, 5))
  assert not known.holds(ask(0, 5))  # not read to the end
  known.read(0)
  assert known.holds(ask(0, 5))
  assert not known.holds(ask(0, 6)) and not known.holds(ask(1, 5))
  again = ask(0, 5)
  assert known.follows(again) and known.take(1) == [(again, 0)]


def test_a_slot_without_a_prompt_holds_none_when_it_is_read():
  known = prompts.Prompts()
  known.read(4)  # a later turn of a conversation
  known.follows(ask(4, 5))
  known.follows(ask(1, 5))
  assert known.take(1) == []
