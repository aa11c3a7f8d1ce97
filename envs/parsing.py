"""Reading values out of what an agent said."""

import re

_INTEGER = re.compile(r"(?<![\w.])[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,18})(?![\w]|[.,][0-9])", re.ASCII)


def parse_int(text: str) -> int | None:
    """The last whole number in a text, or None where there is none.

    The last one, because agents think aloud before they answer: "not 40, so 42" is 42. Thousands separators are read
    ("1,234"); decimals ("3.5"), numbers inside words ("x12") and more than 18 digits are not whole numbers.

    Args:
        text: what the agent said.

    Returns:
        The number, or None.
    """
    found = _INTEGER.findall(text)
    return int(found[-1].replace(",", "")) if found else None
