"""Functions that repositories are made of, each with calls to try it with.

None has a loop whose end a mistake could move away: only `for`, over what is there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

Sampler = Callable[[Random], list[Any]]
"""Draws the arguments of one call, JSON-able."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of the library.

    Attributes:
        name: its name.
        source: its code; in `ONE_LINERS` `{a}` and `{b}` stand for its parameters.
        sample: draws arguments.
    """

    name: str
    source: str
    sample: Sampler


def _pair(rng: Random) -> list[Any]:
    return [rng.randint(2, 9), rng.randint(2, 9)]


def _numbers(rng: Random) -> list[Any]:
    return [[rng.randint(-9, 20) for _ in range(rng.randint(0, 7))]]


def _word(rng: Random, letters: str = "abcdeABE") -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randint(0, 7)))


def _words(rng: Random) -> list[Any]:
    return [" ".join(_word(rng) for _ in range(rng.randint(0, 5)))]


def _one_liner(name: str, expression: str) -> Function:
    return Function(name=name, source=f"def {name}({{a}}, {{b}}):\n    return {expression}\n", sample=_pair)


ONE_LINERS = (
    _one_liner("total", "{a} + {b}"),
    _one_liner("difference", "{a} - {b}"),
    _one_liner("product", "{a} * {b}"),
    _one_liner("quotient", "{a} // {b}"),
    _one_liner("remainder", "{a} % {b}"),
    _one_liner("larger", "max({a}, {b})"),
    _one_liner("smaller", "min({a}, {b})"),
    _one_liner("below", "{a} < {b}"),
    _one_liner("above", "{a} > {b}"),
    _one_liner("equal", "{a} == {b}"),
)
"""Functions of two numbers whose name says what is right."""

MODULES: dict[str, tuple[Function, ...]] = {
    "numerals": (
        Function(
            name="clamp",
            source="""
def clamp(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value
""",
            sample=lambda rng: [rng.randint(-20, 20), rng.randint(-9, 0), rng.randint(1, 9)],
        ),
        Function(
            name="digits",
            source="""
def digits(number):
    total = 0
    for digit in str(abs(number)):
        total += int(digit)
    return total
""",
            sample=lambda rng: [rng.randint(-999, 9999)],
        ),
        Function(
            name="divisors",
            source="""
def divisors(number):
    return [one for one in range(1, number + 1) if number % one == 0]
""",
            sample=lambda rng: [rng.randint(1, 40)],
        ),
        Function(
            name="is_leap",
            source="""
def is_leap(year):
    if year % 400 == 0:
        return True
    if year % 100 == 0:
        return False
    return year % 4 == 0
""",
            sample=lambda rng: [rng.choice([1900, 2000, 2100, 2400, rng.randint(1890, 2030)])],
        ),
        Function(
            name="seconds",
            source="""
def seconds(clock):
    hours, minutes, rest = clock.split(':')
    return int(hours) * 3600 + int(minutes) * 60 + int(rest)
""",
            sample=lambda rng: [f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"],
        ),
    ),
    "lists": (
        Function(
            name="running",
            source="""
def running(items):
    total = 0
    sums = []
    for item in items:
        total += item
        sums.append(total)
    return sums
""",
            sample=_numbers,
        ),
        Function(
            name="pairs",
            source="""
def pairs(items):
    return [[items[place], items[place + 1]] for place in range(len(items) - 1)]
""",
            sample=_numbers,
        ),
        Function(
            name="chunks",
            source="""
def chunks(items, size):
    if size < 1:
        raise ValueError('size must be positive')
    return [items[start:start + size] for start in range(0, len(items), size)]
""",
            sample=lambda rng: [*_numbers(rng), rng.randint(0, 3)],
        ),
        Function(
            name="unique",
            source="""
def unique(items):
    seen = []
    for item in items:
        if item not in seen:
            seen.append(item)
    return seen
""",
            sample=lambda rng: [[rng.randint(0, 4) for _ in range(rng.randint(0, 8))]],
        ),
        Function(
            name="second_largest",
            source="""
def second_largest(items):
    ordered = sorted(set(items))
    if len(ordered) < 2:
        return None
    return ordered[len(ordered) - 2]
""",
            sample=_numbers,
        ),
        Function(
            name="rotate",
            source="""
def rotate(items, steps):
    if not items:
        return []
    steps = steps % len(items)
    return items[steps:] + items[:steps]
""",
            sample=lambda rng: [*_numbers(rng), rng.randint(-9, 9)],
        ),
    ),
    "texts": (
        Function(
            name="initials",
            source="""
def initials(text):
    return ''.join(word[0].upper() for word in text.split())
""",
            sample=_words,
        ),
        Function(
            name="is_palindrome",
            source="""
def is_palindrome(text):
    plain = [letter for letter in text.lower() if letter.isalpha()]
    return plain == plain[::-1]
""",
            sample=lambda rng: [(word := _word(rng, "abAB ")) + rng.choice(["", word[::-1], word[::-1].lower(), "c"])],
        ),
        Function(
            name="longest",
            source="""
def longest(text):
    best = ''
    for word in text.split():
        if len(word) > len(best):
            best = word
    return best
""",
            sample=_words,
        ),
        Function(
            name="shorten",
            source="""
def shorten(text, size):
    if len(text) <= size:
        return text
    return text[:max(size - 3, 0)] + '...'
""",
            sample=lambda rng: ["".join(rng.choice("abc") for _ in range(rng.randint(0, 9))), rng.randint(3, 8)],
        ),
        Function(
            name="caesar",
            source="""
def caesar(text, shift):
    moved = ''
    for letter in text.lower():
        if 'a' <= letter and letter <= 'z':
            letter = chr((ord(letter) - 97 + shift) % 26 + 97)
        moved += letter
    return moved
""",
            sample=lambda rng: [_word(rng, "abmyzAZ -"), rng.randint(-30, 30)],
        ),
        Function(
            name="count_words",
            source="""
def count_words(text):
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    return counts
""",
            sample=lambda rng: [" ".join(rng.choice(["a", "B", "b", "cc"]) for _ in range(rng.randint(0, 6)))],
        ),
    ),
    "records": (
        Function(
            name="balance",
            source="""
def balance(entries):
    total = 0
    for kind, amount in entries:
        if kind == 'in':
            total += amount
        if kind == 'out':
            total -= amount
    return total
""",
            sample=lambda rng: [
                [[rng.choice(["in", "out", "note"]), rng.randint(1, 50)] for _ in range(rng.randint(0, 6))]
            ],
        ),
        Function(
            name="adults",
            source="""
def adults(people):
    return sorted(person['name'] for person in people if person['age'] >= 18)
""",
            sample=lambda rng: [
                [{"name": _word(rng), "age": rng.choice([17, 18, 19, 40])} for _ in range(rng.randint(0, 5))]
            ],
        ),
        Function(
            name="merge",
            source="""
def merge(first, second):
    merged = dict(first)
    for key, value in second.items():
        merged[key] = max(merged.get(key, value), value)
    return merged
""",
            sample=lambda rng: [
                {key: rng.randint(0, 9) for key in rng.sample("abcd", rng.randint(0, 4))} for _ in "12"
            ],
        ),
        Function(
            name="price",
            source="""
def price(items, voucher):
    total = sum(count * each for count, each in items)
    if total >= 100 and voucher:
        return total - 10
    return total
""",
            sample=lambda rng: [
                [[rng.randint(1, 5), rng.choice([5, 20, 25])] for _ in range(rng.randint(0, 4))],
                rng.random() < 0.6,
            ],
        ),
        Function(
            name="overlap",
            source="""
def overlap(first, second):
    start = max(first[0], second[0])
    end = min(first[1], second[1])
    return max(end - start, 0)
""",
            sample=lambda rng: [sorted(rng.sample(range(20), 2)) for _ in "12"],
        ),
    ),
}
"""Functions of several lines, by the module that they stand in."""
