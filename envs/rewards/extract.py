"""Where in a reply its answer stands, and what the right one is."""

import re
from collections.abc import Callable, Mapping

from agar.envs.contract import shown
from agar.envs.rubric import Conversation
from agar.errors import EnvError

Extract = Callable[[str], str | None]
"""A reply's answer; None where it gives none."""

BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
"""Where a box begins."""
_JOINT = re.compile(r"[\s$.,;:/|&]*(?:(?:\\text\{\s*)?(?:or|and)\b[\s$}]*)?")
_SQUAD = {"text", "answer_start"}


def whole(reply: str) -> str | None:
    """All of it."""
    return reply.strip() or None


def last_line(reply: str) -> str | None:
    """The last line that is not empty."""
    return next((line.strip() for line in reversed(reply.splitlines()) if line.strip()), None)


def boxed(reply: str) -> str | None:
    r"""What stands in the last `\boxed{…}`, braces inside it included."""
    starts = list(BOX.finditer(reply))
    if not starts:
        return None
    end = _closing(reply, starts[-1].end())
    return None if end is None else reply[starts[-1].end() : end].strip()


def several_boxed(reply: str) -> bool:
    r"""Whether the last box is offered beside another with something else in it: `\boxed{1}` or `\boxed{2}`."""
    *_, before, last = [None, None, *BOX.finditer(reply)]
    if before is None or last is None or (end := _closing(reply, before.end())) is None:
        return False
    joint = _JOINT.fullmatch(reply[end + 1 : last.start()])
    return joint is not None and reply[before.end() : end].strip() != boxed(reply)


def _closing(reply: str, begin: int) -> int | None:
    """Where the brace is closed that was opened before `begin`."""
    depth = 1
    for at in range(begin, len(reply)):
        depth += {"{": 1, "}": -1}.get(reply[at], 0)
        if depth == 0:
            return at
    return None


def tagged(tag: str) -> Extract:
    """What stands in the last `<tag>…</tag>`."""
    opening, closing = f"<{tag}>", f"</{tag}>"

    def find(reply: str) -> str | None:
        # No pattern: one would look through the rest of a reply anew for each tag that is never closed.
        found, at = None, 0
        while (begin := reply.find(opening, at)) >= 0:
            begin += len(opening)
            end = reply.find(closing, begin)
            if end < 0:
                break
            found, at = reply[begin:end], end + len(closing)
        return None if found is None else found.strip()

    return find


def after(mark: str) -> Extract:
    """What stands behind the last `mark`, to the end of its line; GSM8K's is `####`."""

    def find(reply: str) -> str | None:
        _, found, rest = reply.rpartition(mark)
        return (rest.splitlines() or [""])[0].strip() or None if found else None

    return find


def gold_of(told: Conversation, name: str) -> list[str]:
    """The right answers: an entry of the task's payload, one or a list of them, as text.

    SQuAD's table of answers (`{"text": […], "answer_start": […]}`) is the list of its texts.

    Raises:
        EnvError: the task has no such entry, an empty list, or something that is neither a text nor a number.
    """
    value = told.task.payload.get(name)
    if isinstance(value, Mapping) and set(value) == _SQUAD:
        value = value["text"]
    answers = list(value) if isinstance(value, (list, tuple)) else [value]
    if value is None or not answers:
        raise EnvError(f"task {told.task.key!r} has no {name!r} in its payload: name the entry that holds the answer")
    for answer in answers:
        if not isinstance(answer, str | int | float):
            raise EnvError(
                f"task {told.task.key!r}: {name} holds {shown(answer)}: expected a text, a number, a list of them, or "
                'SQuAD\'s {"text": […], "answer_start": […]}'
            )
    return [str(answer) for answer in answers]
