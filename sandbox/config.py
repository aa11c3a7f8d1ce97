"""Settings of a sandbox."""

import posixpath
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from agar.config import BaseConfig

GATEWAY_PORT = 8400
"""Where the gateway is reached inside a sandbox with `network = "gateway"`, on 127.0.0.1."""
_TAKEN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/dev", "/work", "/tmp")


class SandboxSpec(BaseConfig):
    """What a sandbox is made of and how much it may use."""

    backend: Literal["bubblewrap", "docker", "remote", "e2b", "fake"] = "bubblewrap"
    """What isolates: `bubblewrap` (Linux namespaces, no daemon), `docker` (a container of a Docker engine), `remote`
    (what `agar sandbox serve` has on another machine), `e2b` (a machine of that service) or `fake` (scripted, runs
    nothing; for tests)."""
    server: str | None = None
    """Where the remote sandboxes are, as `agar sandbox serve` prints it, its token in `AGAR_SANDBOX_TOKEN`; or the
    interface of a service like E2B, its key in `E2B_API_KEY`."""
    template: str = "base"
    """What an E2B sandbox is made of, by the service's name; what it may use is the template's."""
    image: str | None = None
    """Root file system of a Docker sandbox: the name of an image that the engine has, or the absolute path of a tarball
    of one. None packs one from this machine's own shell, core utilities, Python and git."""
    engine: Path | None = None
    """The Docker engine's unix socket; None takes `DOCKER_HOST`, else /var/run/docker.sock. Podman's serves too."""
    runtime: str | None = None
    """How the Docker engine runs containers, by a name that it knows (`runc`, `runsc`); None takes its default."""
    user: int = Field(1000, ge=1, lt=65_000)
    """The user, and group, that commands see themselves as; never root."""
    network: Literal["none", "gateway"] | tuple[str, ...] = "none"
    """What the sandbox can reach: nothing but its own loopback; there also one port, behind which is the gateway; or
    through a proxy on that port the listed places, each `host:port` or `*.domain:port`, and nothing else."""
    mounts: dict[str, Path] = Field(default_factory=dict)
    """Folders and files of this machine that the sandbox sees, read-only: absolute path inside to path outside. All of
    it that is readable for everybody can be read inside; where agar runs as root, folders above it need not be."""
    workspace: Path | None = None
    """A folder of this machine that `/work` starts as, whatever its size; what is changed stays in the sandbox. What
    belongs to the folder's owner is the sandbox's user's own. With `docker` it is copied in."""
    cpus: float | None = Field(None, gt=0)
    """Processors' worth of time that all its processes share; None sets no bound beyond the deadline."""
    memory_mib: int = Field(256, ge=16)
    """Memory of all its processes and of the files it has written, in MiB."""
    pids: int = Field(64, ge=8)
    """Processes and threads at one time."""
    disk_mib: int = Field(64, ge=1)
    """Size of everything it may write (`/work`, `/tmp` and `/dev/shm` together), in MiB; held in memory."""
    files: int = Field(10_000, ge=16)
    """Files and directories that it may create."""
    timeout_s: float = Field(10.0, gt=0)
    """Deadline of one `exec` that names none, in seconds; the whole process tree is killed at it."""
    output_bytes: int = Field(1 << 20, ge=1)
    """Bytes kept of stdout, and as many of stderr; a command that writes more is killed."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of every command, added to PATH, HOME and LANG; nothing is inherited from the caller."""

    @field_validator("env")
    @classmethod
    def _names_are_sane(cls, env: dict[str, str]) -> dict[str, str]:
        check_env_names(env)
        return env

    @field_validator("network")
    @classmethod
    def _places_have_ports(cls, network: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for place in network if isinstance(network, tuple) else ():
            host, _, port = place.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65_536 or "*" in host.removeprefix("*."):
                raise ValueError(f"network: {place!r} must be host:port or *.domain:port, for instance example.org:443")
        return network

    @field_validator("workspace")
    @classmethod
    def _workspace_is_absolute(cls, workspace: Path | None) -> Path | None:
        if workspace is not None and (not workspace.is_absolute() or set(str(workspace)) & set(",:\\\0")):
            raise ValueError(
                f"workspace: {str(workspace)!r} must be an absolute path without a comma, colon or backslash"
            )
        return workspace

    @field_validator("mounts")
    @classmethod
    def _mounts_have_a_place(cls, mounts: dict[str, Path]) -> dict[str, Path]:
        for inside, outside in mounts.items():
            if not posixpath.isabs(inside) or posixpath.normpath(inside) != inside or "\0" in f"{inside}{outside}":
                raise ValueError(f"mounts: {inside!r} must be an absolute path without '.', '..' or a '/' at its end")
            if inside == "/" or any(inside == taken or inside.startswith(f"{taken}/") for taken in _TAKEN):
                raise ValueError(f"mounts: {inside!r} is the sandbox's own: choose a place outside {', '.join(_TAKEN)}")
            if not outside.is_absolute():
                raise ValueError(f"mounts: {str(outside)!r} must be an absolute path of this machine")
        return mounts


class SandboxesConfig(BaseConfig):
    """The sandboxes of a run's environments."""

    warm: int = Field(0, ge=0)
    """Sandboxes of one spec that are kept started beside those in use; for backends that are slow to start."""


def check_env_names(env: dict[str, str]) -> None:
    """Refuse names and values that no process environment can hold.

    Raises:
        ValueError: a name is empty or holds `=`, or a name or value holds a NUL byte.
    """
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"environment variable {name!r} needs a name without '=' and no NUL bytes: rename it")
