"""Time in which somebody is inside counts once, however many are."""

from agentrl_jax.rollout import busy


def test_the_union_is_counted_and_asking_starts_anew():
  clock = [0.0]
  one = busy.Busy(lambda: clock[0])
  clock[0] = 1.0
  one.__enter__()
  clock[0] = 2.0
  one.__enter__()  # another thread
  clock[0] = 4.0
  one.__exit__()
  clock[0] = 5.0
  assert one.take() == 4.0  # 1 to 5, and somebody still inside
  clock[0] = 7.0
  one.__exit__()
  clock[0] = 9.0
  assert one.take() == 2.0  # 5 to 7
  assert one.take() == 0.0
