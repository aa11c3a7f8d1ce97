"""Mathematical answers: equal as text, as numbers, or as expressions."""

import re
from collections import Counter
from collections.abc import Callable

from agar.envs.rewards import notation
from agar.envs.rewards.extract import BOX, Extract, after, boxed, gold_of, last_line, several_boxed
from agar.envs.rewards.maths_worker import MISSING
from agar.envs.rewards.worker import NoAnswer, Workers
from agar.envs.rubric import Conversation
from agar.errors import EnvError, MissingExtraError, to_install

LONGEST = 400
"""Characters of an answer that is looked at as an expression; a longer one is wrong."""

_SAID = re.compile(r"answer\W{0,3}\s*(?:is\b|:|=)[\s:=*]*", re.IGNORECASE)
_EQUALS = re.compile(r"(?<![!<>=≠])=(?!=)|:(?=\s)|\b(?:is|are|equals|get|gives|makes)\b")
_JOINED = re.compile(r"(?:,|\band|\$)$")
_DENIED = re.compile(r"\b(?:or|not|never)\b|n't\b|n\u2019t\b", re.IGNORECASE)


def final_answer(reply: str) -> str | None:
    r"""The answer that a reply ends with, all of it.

    That is the last `\boxed{…}`; or what follows the last `####`; or the rest of the line behind the last "answer is";
    or, of the last line, what follows its last `=` or "is", or all of it. A sentence that says "not" or "or" before the
    answer gives none, and so do two boxes side by side.
    """
    if several_boxed(reply):
        return None
    if (found := boxed(reply) or after("####")(reply)) is not None:
        return found
    if box := list(BOX.finditer(reply)):  # one that was not closed holds no answer
        reply = _JOINED.sub("", reply[: box[-1].start()].rstrip())
    if said := list(_SAID.finditer(reply)):
        before, rest = reply[: said[-1].start()], (reply[said[-1].end() :].splitlines() or [""])[0]
    else:
        rest, before = last_line(reply) or "", ""
        if equals := list(_EQUALS.finditer(rest)):
            before, rest = rest[: equals[-1].start()], rest[equals[-1].end() :]
    denied = _DENIED.search(before[before.rfind("\n") + 1 :]) is not None
    return None if denied else _sentence(rest).strip().rstrip(".").strip("* ") or None


def _sentence(text: str) -> str:
    """The first sentence, where no other has a number in it."""
    first, stop, rest = text.partition(". ")
    return first if stop and not re.search(r"\d", rest) else text


def maths(
    gold: str = "answer",
    *,
    extract: Extract = final_answer,
    symbolic: bool = True,
    timeout_s: float = 5.0,
    workers: int = 1,
) -> Callable[[Conversation], float]:
    r"""1 if the answer is equal to a right one, else 0: as text, as a number, or as an expression.

    Expressions (LaTeX or plain) are compared by `math-verify` in a process of its own, since one can keep it busy for
    ever; an answer that takes longer than `timeout_s` to compare is wrong.

    Args:
        gold: the entry of the task's payload that holds the right answer, or a list of right ones.
        extract: finds the answer in the reply.
        symbolic: False compares texts and numbers only, without another package.
        timeout_s: for one comparison.
        workers: processes that compare; so many comparisons run at a time.
    """
    verifier = Verifier(timeout_s=timeout_s, workers=workers) if symbolic else None

    def score(told: Conversation) -> float:
        said = extract(told.reply)
        return float(said is not None and any(equal(said, right, verifier) for right in gold_of(told, gold)))

    return score


def equal(said: str, right: str, verifier: "Verifier | None" = None) -> bool:
    """Whether two answers are the same.

    The whole of each is compared. A unit may be left out or added, but not be another one.
    """
    said, right = notation.clean(said), notation.clean(boxed(right) or right)
    if notation.plain(said) == notation.plain(right):
        return True
    if not ("=" in said and "=" in right):
        said, right = notation.unnamed(said), notation.unnamed(right)
    said, unit = notation.without_unit(said)
    right, wanted = notation.without_unit(right)
    if unit and wanted and unit != wanted:
        return False
    mine, theirs = notation.number(said), notation.number(right)
    if mine is not None and theirs is not None:
        return mine == theirs
    if verifier is None or len(said) > LONGEST or not notation.comparable(said, right):
        return False
    return verifier.equal(said, right)


class Verifier:
    """Compares expressions in processes of their own, killed and started anew where one takes too long.

    Safe to call from several threads.
    """

    def __init__(self, *, timeout_s: float = 5.0, workers: int = 1) -> None:
        """Give each comparison `timeout_s`; `workers` of them run at a time."""
        self._workers = Workers("agar.envs.rewards.maths_worker", count=workers, timeout_s=timeout_s)
        self.undecided: Counter[str] = Counter()
        """Comparisons that came to nothing, and so to "not equal": `timeout`, `died` (the process, for instance of
        memory), `error` (an expression that sympy raised over)."""

    @property
    def slowest(self) -> list[tuple[float, str]]:
        """The comparisons that took longest: seconds, and the pair."""
        return self._workers.slowest

    def equal(self, said: str, right: str) -> bool:
        """Whether two expressions are equal; False where that could not be found out in time.

        Raises:
            MissingExtraError: `math-verify` is not installed.
            EnvError: the process does not come up.
        """
        try:
            answer = self._workers.ask([said, right])
        except NoAnswer as error:
            self.undecided[error.reason] += 1
            return False
        except EnvError as error:
            if MISSING in str(error):
                raise MissingExtraError(f"comparing expressions needs math-verify: {to_install('maths')}") from error
            raise
        if answer is None:
            self.undecided["error"] += 1
        return answer is True

    def close(self) -> None:
        """End the processes. They end with their owner too."""
        self._workers.close()
