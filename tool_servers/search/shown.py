"""What an agent is shown of what was found."""

from collections.abc import Iterable

from agar.tool_servers.search.base import Hit


def shown(hits: Iterable[Hit], *, text_chars: int) -> str:
    """The passages, numbered, the best first.

    Args:
        hits: what was found.
        text_chars: the longest text; the rest is cut.
    """
    found = [
        f"[{number}] " + "\n".join(part for part in (hit.passage.title, _cut(hit.passage.text, text_chars)) if part)
        for number, hit in enumerate(hits, start=1)
    ]
    return "\n\n".join(found) or "nothing found"


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[:chars].rstrip() + "..."
