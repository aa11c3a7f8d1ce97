"""Where an index is put: whole or not at all, and never over anything else."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from agar.errors import ConfigError, DeadlineError

_LOCK_TIMEOUT_S = 60.0
_LOCK_POLL_S = 0.02


def check(folder: Path, *, ours: Collection[str]) -> None:
    """Refuse a place where something lies that putting an index there would delete.

    Args:
        folder: the place; a missing one is free, and so is an empty one.
        ours: names of what may be replaced.

    Raises:
        ConfigError: it is no folder, or holds something else.
    """
    try:
        others = sorted(path.name for path in folder.iterdir() if path.name not in ours)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"no index can be put at {folder} ({error.strerror}): name another folder") from error
    if others:
        raise ConfigError(
            f"{folder} holds {others[0]!r}, which is no part of an index, and an index is put in place of its whole "
            "folder: name a folder of its own"
        )


def put(fresh: Path, folder: Path, *, held: Callable[[], bool], ours: Callable[[], Collection[str]]) -> None:
    """Move a new index into its place, unless another process has put the same one there meanwhile.

    A small file beside the folder, `.NAME.lock`, keeps processes apart for the moment that this takes: without it, one
    could take away what another has just put there and begun to read.

    Args:
        fresh: the new one, in the same parent folder.
        folder: the place.
        held: whether what lies there is the same.
        ours: names of what may be replaced there; see `check`.

    Raises:
        ConfigError: something else lies there.
        DeadlineError: another process kept the lock.
    """
    old = fresh.with_name(f"{fresh.name}.old")
    with _alone(folder.with_name(f".{folder.name}.lock")):
        if held():
            return
        check(folder, ours=ours())
        if folder.exists():
            os.rename(folder, old)
        try:
            os.rename(fresh, folder)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.rename(old, folder)
            raise
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    deadline_s = time.monotonic() + _LOCK_TIMEOUT_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline_s:
                    raise DeadlineError(
                        f"another process held {path} for {_LOCK_TIMEOUT_S:g} s: end it, or build somewhere else"
                    ) from error
                time.sleep(_LOCK_POLL_S)
        yield
