"""Times of day as text and as minutes."""


def minutes(text):
  """Turns 'hh:mm' into minutes since midnight.

  >>> minutes('09:30')
  570
  >>> minutes('00:05')
  5
  >>> minutes('23:59')
  1439
  >>> minutes('24:00')
  -1
  >>> minutes('7:60')
  -1
  """
  hours, _, rest = text.partition(':')
  if not hours.isdigit() or not rest.isdigit():
    return -1
  if int(hours) > 23 or int(rest) > 59:
    return -1
  return int(hours) * 60 + int(rest)


def clock(total):
  """Turns minutes since midnight into 'hh:mm'; days wrap around.

  >>> clock(570)
  '09:30'
  >>> clock(5)
  '00:05'
  >>> clock(1445)
  '00:05'
  >>> clock(-10)
  '23:50'
  """
  total = total % 1440
  return str(total // 60).rjust(2, '0') + ':' + str(total % 60).rjust(2, '0')


def gap(start, end):
  """Minutes from one time to the next time of that name.

  >>> gap('09:30', '10:15')
  45
  >>> gap('23:00', '01:00')
  120
  >>> gap('08:00', '08:00')
  0
  """
  first, last = minutes(start), minutes(end)
  if last < first:
    last += 1440
  return last - first


def duration(seconds):
  """Spells seconds as '1h 2m 3s', without what is zero.

  >>> duration(3723)
  '1h 2m 3s'
  >>> duration(60)
  '1m'
  >>> duration(0)
  '0s'
  >>> duration(7205)
  '2h 5s'
  """
  parts = []
  for size, unit in ((3600, 'h'), (60, 'm'), (1, 's')):
    count = seconds // size
    if count > 0:
      parts.append(str(count) + unit)
    seconds -= count * size
  return ' '.join(parts) or '0s'


def overlap(first, second):
  """Minutes that two (start, end) spans have in common.

  >>> overlap(('09:00', '11:00'), ('10:30', '12:00'))
  30
  >>> overlap(('09:00', '10:00'), ('10:00', '11:00'))
  0
  >>> overlap(('08:00', '18:00'), ('12:00', '13:00'))
  60
  >>> overlap(('08:00', '09:00'), ('12:00', '13:00'))
  0
  """
  start = max(minutes(first[0]), minutes(second[0]))
  end = min(minutes(first[1]), minutes(second[1]))
  return max(end - start, 0)


def free(busy, start, end):
  """Spans between start and end that no busy span covers.

  >>> free([('09:00', '10:00')], '08:00', '12:00')
  [('08:00', '09:00'), ('10:00', '12:00')]
  >>> free([('10:00', '11:00'), ('08:00', '10:30')], '08:00', '12:00')
  [('11:00', '12:00')]
  >>> free([], '08:00', '09:00')
  [('08:00', '09:00')]
  """
  spans = []
  for begin, finish in sorted(busy):
    if begin > start:
      spans.append((start, begin))
    if finish > start:
      start = finish
  if start < end:
    spans.append((start, end))
  return spans
