"""Where published versions lie on disk, and for how long."""

import contextlib
import fcntl
import logging
import os
import shutil
import uuid
from io import IOBase
from pathlib import Path

logger = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")
LOCK = "owner.lock"
"""File that a store's process keeps locked for as long as it lives."""

_PREFIX = "agar-versions-"


class VersionStore:
    """Directories `v000007` of one policy; the newest few stay.

    They lie in a folder of this store alone, so that runs may share a parent. The folder goes when the store closes;
    one that a killed process left behind goes when the next store below the same parent is first used.

    Args:
        parent: where to put that folder, or None: into shared memory where it can be written, else below `run_dir`.
        run_dir: the run's own directory.
        policy: name of the policy.
        keep: versions that stay.
    """

    def __init__(self, *, parent: Path | None, run_dir: Path, policy: str, keep: int) -> None:
        self.keep = keep
        self._written: list[Path] = []
        self._lock: IOBase | None = None
        if parent is None:
            parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else run_dir / "published"
        self._own = parent.resolve() / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
        self.root = self._own / policy

    def directory(self, version: int) -> Path:
        """The directory of a version, empty: what an interrupted export left there is removed."""
        if self._lock is None:
            _sweep(self._own.parent)
            self._own.mkdir(parents=True)
            # Under its name only once it is locked, so that no sweep finds it free.
            fresh = self._own / f"{LOCK}.new"
            self._lock = fresh.open("wb")
            with contextlib.suppress(OSError):  # a shared file system may have no locks: then nobody sweeps there
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            fresh.rename(self._own / LOCK)
        path = self.root / f"v{version:06d}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        self._written = [*(other for other in self._written if other != path), path]
        return path

    def prune(self) -> None:
        """Remove all but the versions written last. Called once a version has been received, never before.

        Written last, not numbered highest: a trainer that loads an earlier checkpoint finds later versions here.
        """
        self._written = self._written[-self.keep :]
        for path in self.root.glob("v*"):
            if path not in self._written:
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Remove everything that it wrote; safe to call twice."""
        shutil.rmtree(self._own, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _sweep(parent: Path) -> None:
    """Remove stores whose process is gone: its lock went with it, and a process elsewhere still holds its own."""
    for lock in parent.glob(f"{_PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError), lock.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            logger.info("removing published weights of a process that is gone: %s", lock.parent)
            shutil.rmtree(lock.parent, ignore_errors=True)
