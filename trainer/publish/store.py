"""Where published versions lie on disk, and for how long."""

import logging
import os
import shutil
import uuid
from pathlib import Path

logger = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")


class VersionStore:
    """Directories `v000007` of one policy; the newest few stay.

    Args:
        parent: where to keep them, or None: below shared memory where it can be written, else below `run_dir`. A
            directory that the store chose itself goes when the store closes.
        run_dir: the run's own directory.
        policy: name of the policy.
        keep: versions that stay.
    """

    def __init__(self, *, parent: Path | None, run_dir: Path, policy: str, keep: int) -> None:
        self.keep = keep
        self._temporary = parent is None
        if parent is not None:
            self.root = parent / policy
        elif os.access(SHARED_MEMORY, os.W_OK):
            self.root = SHARED_MEMORY / f"agar-{os.getpid()}-{uuid.uuid4().hex[:8]}" / policy
        else:
            self.root = run_dir / "published" / policy

    def directory(self, version: int) -> Path:
        """The directory of a version, empty: what an interrupted export left there is removed."""
        path = self.root / f"v{version:06d}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def prune(self) -> None:
        """Remove all but the newest versions. Called once a version has been received, never before."""
        for path in sorted(self.root.glob("v*"))[: -self.keep]:
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Remove a directory of the store's own choosing."""
        if self._temporary:
            shutil.rmtree(self.root, ignore_errors=True)
            if self.root.parent.is_dir() and not any(self.root.parent.iterdir()):
                self.root.parent.rmdir()
