"""The calendar, by hand."""


def is_leap(year):
  """Whether a year has a 29 February.

  >>> is_leap(2024)
  True
  >>> is_leap(1900)
  False
  >>> is_leap(2000)
  True
  >>> is_leap(2023)
  False
  """
  return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in(year, month):
  """Days of a month.

  >>> days_in(2024, 2)
  29
  >>> days_in(2023, 2)
  28
  >>> days_in(2023, 4)
  30
  >>> days_in(2023, 12)
  31
  """
  if month == 2:
    return 29 if is_leap(year) else 28
  return 30 if month in (4, 6, 9, 11) else 31


def day_of_year(year, month, day):
  """Number of a day within its year.

  >>> day_of_year(2023, 1, 1)
  1
  >>> day_of_year(2024, 3, 1)
  61
  >>> day_of_year(2023, 12, 31)
  365
  """
  total = day
  for earlier in range(1, month):
    total += days_in(year, earlier)
  return total


def weekday(year, month, day):
  """Name of the day, from 1 January 1900, a Monday.

  >>> weekday(1900, 1, 1)
  'Mon'
  >>> weekday(2024, 2, 29)
  'Thu'
  >>> weekday(2000, 1, 1)
  'Sat'
  """
  days = day_of_year(year, month, day) - 1
  for earlier in range(1900, year):
    days += 366 if is_leap(earlier) else 365
  return ('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[days % 7]


def next_day(year, month, day):
  """The day after.

  >>> next_day(2023, 12, 31)
  (2024, 1, 1)
  >>> next_day(2024, 2, 28)
  (2024, 2, 29)
  >>> next_day(2023, 4, 30)
  (2023, 5, 1)
  >>> next_day(2023, 4, 2)
  (2023, 4, 3)
  """
  day += 1
  if day > days_in(year, month):
    day = 1
    month += 1
  if month > 12:
    month = 1
    year += 1
  return year, month, day


def is_date(text):
  """Whether 'yyyy-mm-dd' is a day of the calendar.

  >>> is_date('2024-02-29')
  True
  >>> is_date('2023-02-29')
  False
  >>> is_date('2023-13-01')
  False
  >>> is_date('2023-1')
  False
  >>> is_date('2023-06-00')
  False
  """
  parts = text.split('-')
  if len(parts) != 3 or not all(part.isdigit() for part in parts):
    return False
  year, month, day = map(int, parts)
  if not 1 <= month <= 12:
    return False
  return 1 <= day <= days_in(year, month)


def age(born, today):
  """Full years between two (year, month, day).

  >>> age((2000, 6, 15), (2024, 6, 14))
  23
  >>> age((2000, 6, 15), (2024, 6, 15))
  24
  >>> age((1999, 12, 31), (2000, 1, 1))
  0
  """
  years = today[0] - born[0]
  if today[1:] < born[1:]:
    years -= 1
  return years
