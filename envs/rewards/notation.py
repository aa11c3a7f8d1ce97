"""How a mathematical answer is written: what may be taken off without changing what it says, and the number it is.

An answer is read whole. Nothing is looked for inside of it: "not 5", "5 million" and `x^5` each hold one number, and
none of them is 5.
"""

import re
from fractions import Fraction

_SIGNS = str.maketrans({
    "\N{MINUS SIGN}": "-", "\N{MULTIPLICATION SIGN}": r"\times ", "·": r"\cdot ", "÷": r"\div ", "π": r"\pi ",
    "∞": r"\infty ", "±": r"\pm ", "≤": r"\le ", "≥": r"\ge ", "\N{UNION}": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
})  # fmt: skip
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]]|\\?\$|\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[!;:]")
_THOUSANDS = re.compile(r"(?<=\d)(?:\\,|\{,\})(?=\d{3}(?!\d))")
_BOLD = re.compile(r"\*\*(.*)\*\*|__(.*)__|\*([^*]*)\*", re.DOTALL)
_SPACES = re.compile(r"(?<![\d\s])\s+|(?<!\s)\s+(?![\d\s])")  # a run is tried from its beginning alone
_NAME = re.compile(r"^[a-zA-Z](?:\([a-zA-Z]\))?\s*=(?!=)\s*")

_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_FRACTION = re.compile(r"([+-]?)\\[dt]?frac(?:\{(\d+)\}\{(\d+)\}|(\d)(\d))")
_NUMBER = re.compile(r"[+-]?(\d*\.?\d+(?:[eE][+-]?\d{1,3})?|\d+\.|\d+/0*[1-9]\d*)", re.ASCII)
_LONGEST_NUMBER = 64

_REGULAR = (
    "yard mile ton gallon second hour day week month year dollar cent euro degree unit point way student book apple egg"
)
_UNIT = {
    "mm": "mm|millimet(?:er|re)s?", "cm": "cm|centimet(?:er|re)s?", "km": "km|kilomet(?:er|re)s?",
    "meter": "met(?:er|re)s?", "mg": "mg|milligrams?", "gram": "grams?", "kg": "kg|kilograms?",
    "ml": "ml|millilit(?:er|re)s?", "liter": "lit(?:er|re)s?", "inch": r"in\.?|inch(?:es)?", "foot": "ft|foot|feet",
    "pound": "lbs?|pounds?", "ounce": "oz|ounces?", "minute": "mins?|minutes?", "mileperhour": "mph",
    "person": "people|persons?", "child": "child(?:ren)?", **{word: f"{word}s?" for word in _REGULAR.split()},
}  # fmt: skip
"""Units, and how each is written."""
_ANY = "|".join(_UNIT.values())
_UNITS = re.compile(
    r"(?<=[\d)}])(?:\s|\\,|\\ |~)*(?:\\(?:text|mathrm|mbox|textrm)\{)?\s*"
    rf"(?:(square|cubic)\s*)?({_ANY})(?:\s*(?:per|/)\s*({_ANY}))?\s*"
    r"\}?\s*((?:\^\s*\{?[23]\}?|[²³])?)$"
)
_POWERS = {"square": "2", "cubic": "3"}
_DEGREES = re.compile(r"(?<=[\d)}])\s*(?:\^\s*\{?\s*\\circ\s*\}?|°)$")

_LETTERS = re.compile(r"\\[a-zA-Z]+|[a-zA-Z]+")
_RARE = re.compile(
    r"\\(?:text\w*|mathrm|mbox|operatorname|begin|end)\s*\{[^{}]*\}|_\s*(?:\{[^{}]*\}|\\?\w)|\\[a-zA-Z]+|\\.|"
    r"[^\\\w\s+\-*/^=<>()\[\]{}|,.!]|[^\W\d_a-zA-Z]",
    re.DOTALL,
)
_COMMON = re.compile(
    r"\\(?:[{},%]|[dt]?frac|sqrt|pi|cdot|times|div|infty|cup|cap|in|leq?|geq?|neq?|pm|mp|binom|(?:arc)?(?:sin|cos|tan)|"
    r"cot|sec|csc|log|ln|exp|alpha|beta|gamma|theta|phi|lambda|mu)"
)
"""What `math-verify` reads."""
_TORN = re.compile(
    r"\.\.|^\s*(?:[*/^<>,]|{op})|(?:[+\-*/^<>,]|{op})\s*$".replace(
        "{op}", r"\\(?:cdot|times|div|cup|cap|in|leq?|geq?|neq?)(?![a-zA-Z])"
    )
)
"""Half a comparison or a sum, of which `math-verify` takes the half that is there."""


def clean(text: str) -> str:
    """An answer without what surrounds it: dollar signs, bold, a full stop; minus signs and the like in ASCII."""
    text = _THOUSANDS.sub("", text.translate(_SIGNS).replace(r"\!", "")).replace("{,}", ",")
    text = " ".join(_DELIMITERS.sub(" ", text).split()).removesuffix(".").strip()
    while (bold := _BOLD.fullmatch(text)) is not None:
        text = "".join(filter(None, bold.groups())).strip().removesuffix(".").strip()
    return text


def plain(text: str) -> str:
    """The same without spaces, but for those that keep two numbers apart."""
    return _SPACES.sub("", text.replace(r"\,", " "))


def unnamed(text: str) -> str:
    """Without the name that is set equal to it: `x = 5` is 5."""
    return _NAME.sub("", text)


def without_unit(text: str) -> tuple[str, str]:
    """A quantity and its unit, by one name however it is written; empty where there is none that is known here."""
    if (found := _DEGREES.search(text)) is not None:
        return text[: found.start()], "degree"
    if (found := _UNITS.search(text)) is None:
        return text, ""
    unit = _one_name(found[2]) + _POWERS.get(found[1], "") + (f"per{_one_name(found[3])}" if found[3] else "")
    power = "".join(filter(str.isalnum, found[4])).translate(str.maketrans("²³", "23"))
    return text[: found.start()], unit + power


def _one_name(written: str) -> str:
    return next(unit for unit, ways in _UNIT.items() if re.fullmatch(ways, written))


def number(text: str) -> Fraction | None:
    """A decimal number, one with an exponent, a fraction of two integers or a percentage, exactly."""
    text = re.sub(r"(?:\\%|percent)$", "%", plain(text))
    percent = text.endswith("%")
    text = text.removesuffix("%")
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    if (latex := _FRACTION.fullmatch(text)) is not None:
        text = f"{latex[1]}{latex[2] or latex[4]}/{latex[3] or latex[5]}"
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    return Fraction(text.removesuffix(".")) / (100 if percent else 1)


def comparable(said: str, right: str) -> bool:
    r"""Whether `math-verify` reads all of two expressions, so that what it says of them is true of the answers.

    It passes over what it does not know: `5\text{ million}` and `\approx 5` are 5 to it, and "not 0", a product of
    letters and 0, is 0. So what it may pass over must stand in both alike, and every letter must be one of the right
    answer's.
    """
    if _TORN.search(said) or _rare(said) != _rare(right) or ("=" in said) != ("=" in right):
        return False
    known = set("".join(_words(right)))
    return all(word == "sqrt" or set(word) <= known for word in _words(said))


def _rare(text: str) -> list[str]:
    return ["".join(mark.split()) for mark in _RARE.findall(text) if not _COMMON.fullmatch(mark)]


def _words(text: str) -> list[str]:
    return [word for word in _LETTERS.findall(_RARE.sub(" ", text)) if not word.startswith("\\")]
