"""A grader of your own in a process of its own, which is killed when it hangs."""

import base64
import pickle
from collections.abc import Callable

from agar.envs.rewards.worker import NoAnswer, Workers
from agar.envs.rubric import Conversation
from agar.errors import ConfigError, EnvError


def isolated(
    score: str, *, timeout_s: float = 30.0, workers: int = 2, memory_mib: int | None = None
) -> Callable[[Conversation], float]:
    """What `module:function` gives for a conversation, computed where it can be killed.

    It does not protect from code that means harm: run a model's programs in a sandbox (`code_tests`).

    Args:
        score: a function of a `Conversation` that gives a number.
        timeout_s: for one conversation; one that takes longer has no score, and its episode is left out.
        workers: processes; so many conversations are graded at a time.
        memory_mib: address space of each process; None sets no bound.

    Raises:
        ConfigError: `score` is not of that form, or a number is impossible.
    """
    module, _, name = score.partition(":")
    if not module or not name or timeout_s <= 0 or workers < 1:
        raise ConfigError(f'isolated({score!r}): expected "module:function", timeout_s above 0 and workers from 1')
    pool = Workers("agar.envs.rewards.isolated_worker", score, str(memory_mib or 0), count=workers, timeout_s=timeout_s)

    def grade(told: Conversation) -> float:
        about = f"{score} of task {told.task.key}"
        try:
            answer = pool.ask(base64.b64encode(pickle.dumps(told)).decode(), about=about)
        except NoAnswer as error:
            how = f"gave nothing within {timeout_s:g} s" if error.reason == "timeout" else "ended its process"
            raise EnvError(f"{about} {how}") from error
        if "error" in answer:
            raise EnvError(f"{about} raised {answer['error']}")
        return float(answer["score"])

    return grade
