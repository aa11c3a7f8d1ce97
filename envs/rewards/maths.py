"""Mathematical answers: equal as text, as numbers, or as expressions."""

import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from agar.envs.rewards.extract import Extract, after, boxed, gold_of, last_line
from agar.envs.rewards.maths_worker import MISSING
from agar.envs.rewards.worker import NoAnswer, Workers
from agar.envs.rubric import Conversation
from agar.errors import EnvError, MissingExtraError

LONGEST = 400
"""Characters of an answer that is looked at as an expression; a longer one is wrong."""

_SAID = re.compile(r"answer\s*(?:is|:|=)[\s:=]*", re.IGNORECASE)
_FRACTION = re.compile(r"(-?)\\[dt]?frac(?:\{(\d+)\}\{(\d+)\}|(\d)(\d))")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?")


def final_answer(reply: str) -> str | None:
    r"""The last `\boxed{…}`, or what follows the last `####` or "answer is", or the last number of the last line."""
    if (found := boxed(reply) or after("####")(reply)) is not None:
        return found
    said = list(_SAID.finditer(reply))
    if said:
        rest = reply[said[-1].end() :].splitlines()
        return rest[0].strip().rstrip(".") if rest and rest[0].strip() else None
    numbers = _NUMBER.findall(last_line(reply) or "")
    return numbers[-1] if numbers else None


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
    """Whether two answers are the same."""
    right = boxed(right) or right
    if _plain(said) == _plain(right):
        return True
    mine, theirs = _number(said), _number(right)
    if theirs is not None:
        if mine is None and "\\" not in said and len(numbers := _NUMBER.findall(said)) == 1:  # "5 apples"
            mine = _number(numbers[0])
        if mine is not None:
            return mine == theirs
    return verifier is not None and len(said) <= LONGEST and verifier.equal(said, right)


def _plain(text: str) -> str:
    text = text.strip().strip("$").rstrip(".")
    for noise in (r"\left", r"\right", r"\,", r"\!", r"\;", r"\$", "$", " "):
        text = text.replace(noise, "")
    return text


def _number(text: str) -> Fraction | None:
    """A decimal number, a fraction of two integers or a percentage, exactly."""
    text = _plain(text).replace(r"\%", "%")
    percent = text.endswith("%")
    text = text.removesuffix("%")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    if (latex := _FRACTION.fullmatch(text)) is not None:
        text = f"{latex[1]}{latex[2] or latex[4]}/{latex[3] or latex[5]}"
    if len(text) > 64 or not re.fullmatch(r"-?(\d*\.?\d+|\d+/0*[1-9]\d*)", text):
        return None
    return Fraction(text) / (100 if percent else 1)


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
                raise MissingExtraError("comparing expressions needs math-verify: pip install 'agar[maths]'") from error
            raise
        if answer is None:
            self.undecided["error"] += 1
        return answer is True

    def close(self) -> None:
        """End the processes. They end with their owner too."""
        self._workers.close()
