"""The inside of a grading process (`worker.py`): a line of JSON in, a line of JSON out, until its owner is gone."""

import contextlib
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any


def serve(answer: Callable[[Any], Any]) -> None:
    """Say that we are ready, and answer every line.

    What the code that answers prints goes to standard error: the lines on standard output are ours.

    Args:
        answer: from a question to its answer; it raises for nothing.
    """
    replies = _take_output()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _say(replies, "ready")
    for line in sys.stdin:
        _say(replies, answer(json.loads(line)))


def refuse(reason: str) -> None:
    """Say, in the place of `serve`, why there will be no answers."""
    _say(_take_output(), reason)


def _take_output() -> int:
    replies = os.dup(1)
    os.dup2(2, 1)
    return replies


def _say(replies: int, message: Any) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(replies, data) :]


def _end_with(owner: int) -> None:
    """End this process and what it has started, whatever it is busy with, when its owner ends.

    A closed pipe is seen between lines only.
    """
    with contextlib.suppress(OSError):  # it has gone already
        select.select([os.pidfd_open(owner)], [], [])
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
