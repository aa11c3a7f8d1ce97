"""What a run shows: its live table, its stages, its metrics file."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from agar.metrics import ConsoleSink, JsonlSink
from agar.recipe.folder import RunFolder
from agar.rollout.evaluate import Evaluation, Progress
from agar.types import Metrics


class View:
    """Metrics to `metrics.jsonl` and to the terminal.

    Args:
        folder: the run folder.
        steps: steps of the run.
        resume_after: the step that a resumed run goes on from, -1 where it starts over; None for a new run.
    """

    def __init__(self, folder: RunFolder, *, steps: int, resume_after: int | None = None) -> None:
        self._stack = ExitStack()
        self._jsonl = self._stack.enter_context(JsonlSink(folder.metrics, resume_after=resume_after))
        self._console = self._stack.enter_context(ConsoleSink(steps, start=max(resume_after or 0, 0)))
        self._stack.enter_context(_logging_through(self._console))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def stage(self, text: str) -> Iterator[None]:
        """Something that takes a while and has no count."""
        with self._console.activity(text):
            yield

    @contextmanager
    def task(self, text: str) -> Iterator[Progress]:
        """Something that counts what is done."""
        with self._console.activity(text) as activity:
            yield activity.update

    def step(self, step: int, row: Metrics) -> None:
        """The numbers of one step."""
        self._jsonl.write(step, row)
        self._console.write(step, row)

    def evaluation(self, step: int, result: Evaluation) -> None:
        """The result of one evaluation."""
        self._jsonl.write(step, result.metrics)
        excluded = f", {result.excluded} excluded" if result.excluded else ""
        self._console.note(
            f"step {step}: {result.config.title} ({result.config.split}) reward {result.reward_mean:.3f} "
            f"± {result.standard_error:.3f} over {len(result.traces) - result.excluded} episodes{excluded}"
        )


@contextmanager
def _logging_through(console: ConsoleSink) -> Iterator[None]:
    """What is logged goes above the live table instead of through it; how much that is, the log level says."""

    class Above(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            console.note(f"{record.levelname.lower()}: {self.format(record)}")

    handler = Above()
    logger = logging.getLogger("agar")
    logger.addHandler(handler)
    previous, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = previous
        logger.removeHandler(handler)
