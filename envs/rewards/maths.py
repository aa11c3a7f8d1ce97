"""Mathematical answers: equal as text, as numbers, or as expressions."""

import json
import re
import select
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from agar.envs.rewards.extract import Extract, after, boxed, gold_of, last_line
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
    gold: str = "answer", *, extract: Extract = final_answer, symbolic: bool = True, timeout_s: float = 5.0
) -> Callable[[Conversation], float]:
    r"""1 if the answer is equal to a right one, else 0: as text, as a number, or as an expression.

    Expressions (LaTeX or plain) are compared by `math-verify` in a process of its own, since one can keep it busy for
    ever; an answer that takes longer than `timeout_s` to compare is wrong.

    Args:
        gold: the entry of the task's payload that holds the right answer, or a list of right ones.
        extract: finds the answer in the reply.
        symbolic: False compares texts and numbers only, without another package.
        timeout_s: for one comparison.
    """
    verifier = Verifier(timeout_s=timeout_s) if symbolic else None

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
    """A process that compares expressions, started by the first one, ended and started anew when it takes too long.

    Safe to call from several threads: they wait for each other.
    """

    def __init__(self, *, timeout_s: float = 5.0, start_timeout_s: float = 60.0) -> None:
        """Give each comparison `timeout_s`, and the start of the process `start_timeout_s`."""
        self._timeout_s, self._start_timeout_s = timeout_s, start_timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.undecided: Counter[str] = Counter()
        """Comparisons that came to nothing, and so to "not equal": `timeout`, `died` (the process, for instance of
        memory), `error` (an expression that sympy raised over)."""

    def equal(self, said: str, right: str) -> bool:
        """Whether two expressions are equal; False where that could not be found out in time.

        Raises:
            MissingExtraError: `math-verify` is not installed.
            EnvError: the process does not come up.
        """
        with self._lock:
            line = json.dumps([said, right]).encode() + b"\n"
            answer = self._answer(line)
            if answer == "died":  # perhaps of something else than this pair
                answer = self._answer(line)
            if answer not in ("0", "1"):
                self.undecided[answer] += 1
            return answer == "1"

    def close(self) -> None:
        """End the process. It ends with its owner too."""
        with self._lock:
            self._end()

    def _answer(self, line: bytes) -> str:
        """What the process says of a pair, or `timeout` or `died`; in these cases it is ended."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(line)
            answer = self._read(process, self._timeout_s)
        except BrokenPipeError:
            answer = b""
        if answer:
            return answer.decode().strip()
        self._end()
        return "died" if answer == b"" else "timeout"

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agar.envs.rewards.maths_worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
        )  # fmt: skip
        self._process = process
        weakref.finalize(self, _kill, process)
        first = self._read(process, self._start_timeout_s)
        if first != b"ready\n":
            self._end()
            if first == b"missing\n":
                raise MissingExtraError("comparing expressions needs math-verify: pip install 'agar[maths]'")
            raise EnvError(f"the process that compares expressions did not start within {self._start_timeout_s:g} s")
        return process

    def _read(self, process: "subprocess.Popen[bytes]", timeout_s: float) -> bytes | None:
        """One line; None where it did not come in time, empty where the process died."""
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0.0))
            if not ready:
                return None
            byte = process.stdout.read(64)
            if not byte:
                return b""
            line += byte
        return line

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
