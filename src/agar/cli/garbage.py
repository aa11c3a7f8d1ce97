"""The garbage collector of a process in which a gateway is busy."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 10, 10)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect after 50,000 new objects instead of 700, and never what is there already.

    What a model call leaves in its session lives as long as the session does, so the collector goes through it in vain,
    and through every imported module besides. Only cycles wait for it, and there are few. Everything is as before once
    the context is left; entry points use it, the library leaves the collector alone.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
