"""One command on its way into a sandbox: checked, encoded, wrapped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from agar.errors import ConfigError
from agar.sandbox.config import SandboxSpec, check_env_names
from agar.sandbox.egress import proxy_env

_MAX_WORD_BYTES = 100_000  # Linux takes 128 KiB in one argument
_MAX_BYTES = 1_000_000
_LONGEST_S = 366 * 86_400.0  # what stands for ever: sockets, JSON and the system take finite numbers only
_BASE_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "HOME": "/work", "LANG": "C.UTF-8"}

# Runs first inside, and says over descriptor 9 that isolation is complete: whatever fails before is our fault, whatever
# fails after is the command's. $1 is the process limit (0: a control group has it), $2 the working directory.
_WRAP = (
    'printf "started\\n" >&9; exec 9>&-; '
    'if [ "$1" != 0 ]; then ulimit -p "$1" 2>/dev/null || ulimit -u "$1" || exit 126; fi; '  # dash or bash
    'cd -- "$2" || exit 126; shift 2; exec "$@"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A checked command.

    Attributes:
        words: its arguments.
        cwd: working directory.
        env: its whole environment.
        extra: the part of it that its caller gave.
        stdin: what it reads.
        timeout_s: its deadline, in seconds; a year where more was asked for.
        refusal: why it cannot run at all, in words for the agent; else None.
    """

    words: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    extra: Mapping[str, str]
    stdin: bytes
    timeout_s: float
    refusal: str | None

    @classmethod
    def of(
        cls,
        command: str | Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        stdin: bytes | str | None,
        timeout_s: float | None,
        spec: SandboxSpec,
    ) -> Self:
        """Check what `Sandbox.exec` was given.

        What a model may have written (the words, the working directory) is never an exception but a `refusal`; what
        the programmer wrote is.

        Raises:
            ConfigError: the command is empty, or an environment variable or the deadline is impossible.
        """
        words = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
        if not words:
            raise ConfigError("the command is empty: give a string, or a sequence of at least one word")
        deadline = spec.timeout_s if timeout_s is None else timeout_s
        if not deadline > 0:
            raise ConfigError(f"timeout_s must be above 0, got {deadline}: leave it out to use the spec's")
        extra = dict(env or {})
        try:
            check_env_names(extra)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        place = "/work" if not cwd else cwd if cwd.startswith("/") else f"/work/{cwd}"
        # Lone surrogates, which JSON can carry, are no UTF-8.
        clean = tuple(word.encode("utf-8", "replace").decode() for word in (place, *words))
        return cls(
            words=clean[1:],
            cwd=clean[0],
            env={**_BASE_ENV, **spec.env, **proxy_env(spec), **extra},
            extra=extra,
            stdin=stdin.encode() if isinstance(stdin, str) else stdin or b"",
            timeout_s=min(deadline, _LONGEST_S),
            refusal=refusal_of(clean, extra),
        )

    def setenv(self) -> list[str]:
        """Bwrap's options for the environment; bwrap itself starts with none, for `/proc/1/environ` shows its own."""
        return [word for name, value in self.env.items() for word in ("--setenv", name, value)]

    def argv(self, *, processes: int | None) -> list[str]:
        """The words that bwrap runs.

        Args:
            processes: RLIMIT_NPROC to set, or None where a control group bounds processes.
        """
        return ["/bin/sh", "-c", _WRAP, "sh", str(processes or 0), self.cwd, *self.words]


def refusal_of(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Why a command cannot run at all, in words for the agent; None where it can.

    Args:
        words: its arguments.
        env: what its caller adds to its environment.
    """
    given = [*words, *(f"{name}={value}" for name, value in env.items())]
    sizes = [len(word.encode("utf-8", "replace")) for word in given]
    if max(sizes) > _MAX_WORD_BYTES or sum(sizes) > _MAX_BYTES:
        return (
            f"the command is too long: at most {_MAX_WORD_BYTES} bytes in one argument or variable; "
            "write a file and run it\n"
        )
    if any("\0" in word for word in given):
        return "the command holds a NUL byte\n"
    return None
