"""What a sandbox by bubblewrap looks like from inside, in bwrap's options."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agar.sandbox.config import SandboxSpec
from agar.sandbox.keeper import HOST_ETC


def own_folders() -> tuple[Path, ...]:
    """Where agar lies, which no sandbox is to read: its examples hold what makes, and so solves, their own tasks."""
    package = Path(__file__).parents[1]
    return (package.resolve(), *(item.resolve() for item in package.iterdir() if item.is_symlink()))


def options(answer: Mapping[str, Any], spec: SandboxSpec, *, hidden: Sequence[Path] = ()) -> list[str]:
    """Bwrap's options for a workspace; of the host, the sandbox sees programs, libraries and mounts only, read-only.

    Args:
        answer: what the keeper has made.
        spec: what it was made for.
        hidden: folders of the host that are empty inside where they lie below what is shown of every host; what
            `spec.mounts` names is shown as it is.
    """
    root, etc = answer["root"], answer["etc"]
    words = "--unshare-user --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup-try"
    words += " --disable-userns --hostname sandbox --die-with-parent --new-session"
    words += " --clearenv --cap-drop ALL"
    words += f" --uid {spec.user} --gid {spec.user}"
    if spec.network == "none":  # else bwrap starts within the network that the keeper has made
        words += " --unshare-net"
    found = [*words.split(), "--ro-bind", "/usr", "/usr"]
    shown = [Path("/usr")]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            found += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            found += ["--ro-bind", str(path), str(path)]
            shown.append(path)
    for path in hidden:
        if any(path.is_relative_to(top) for top in shown):
            found += ["--perms", "0555", "--tmpfs", str(path), "--remount-ro", str(path)]
    found += ["--ro-bind", etc, "/etc"]
    for name in HOST_ETC:
        found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for source, place in zip(answer["mounts"], spec.mounts, strict=True):
        found += ["--ro-bind", source, place]
    found += ["--proc", "/proc", "--dev", "/dev", "--bind", f"{root}/shm", "/dev/shm", "--remount-ro", "/dev"]
    return [*found, "--bind", f"{root}/tmp", "/tmp", "--bind", f"{root}/work", "/work", "--remount-ro", "/"]
