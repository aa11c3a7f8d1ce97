"""A name for the policy that was made last."""

import os
from pathlib import Path


def link(name: Path, folder: Path) -> None:
    """Let recipes find a policy by a name that stays, wherever the run that made it has put it.

    Args:
        name: a symbolic link; one of an earlier run is replaced.
        folder: the policy, a Hugging Face model folder.
    """
    fresh = name.with_name(f".{name.name}.{os.getpid()}")
    fresh.symlink_to(folder.resolve(), target_is_directory=True)
    os.replace(fresh, name)
