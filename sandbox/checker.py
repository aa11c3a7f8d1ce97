"""The conformance kit: what every sandbox backend must do, checked against a real one.

`await check_sandbox(create)` returns a `Report`; a backend that isolates must pass all of it, a scripted one passes
with `isolates=False`, which leaves out what needs real processes. What a backend may lack (a network, a processor
limit) it must refuse with an error of its kind, never give less of; the report says what was refused and why.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agar.errors import ConfigError, SandboxError, ToolError, UnsupportedPlatformError
from agar.sandbox.checks.check import Check, Make, Refused
from agar.sandbox.checks.commands import COMMANDS
from agar.sandbox.checks.files import FILES
from agar.sandbox.checks.isolation import ISOLATION
from agar.sandbox.checks.limits import LIMITS
from agar.sandbox.checks.processes import PROCESSES
from agar.sandbox.config import SandboxSpec

CHECKS: tuple[Check, ...] = (*COMMANDS, *PROCESSES, *FILES, *LIMITS, *ISOLATION)
"""Everything that is checked, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a backend did.

    Attributes:
        passed: names of the checks that held.
        failed: check name to what went wrong.
        refused: check name to the reason for which the backend, or this machine, openly lacks what it looks for.
    """

    passed: tuple[str, ...]
    failed: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every check held, or was refused."""
        return not self.failed


async def check_sandbox(
    make: Make, *, spec: SandboxSpec | None = None, isolates: bool = True, checks: Iterable[Check] = CHECKS
) -> Report:
    """Run every check, each in fresh sandboxes.

    Args:
        make: makes a sandbox from a spec, as `agar.sandbox.create` does.
        spec: what the sandboxes are made of, but for the settings that a check is about; default the default spec.
        isolates: False for a scripted backend, which runs no processes.
        checks: which ones.

    Raises:
        UnsupportedPlatformError: the machine cannot run the backend at all.
        MissingExtraError: likewise, for want of a package.
    """
    passed, failed, refused = [], {}, {}
    base = spec or SandboxSpec()
    for check in checks:
        if check.real and not isolates:
            continue
        changed = SandboxSpec.model_validate({**base.model_dump(), **check.changes})
        try:
            if check.makes:
                await check.run(make, changed)
            else:
                async with make(changed) as sandbox:
                    await check.run(sandbox)
        except Refused as error:
            refused[check.name] = str(error)
        except (ConfigError, UnsupportedPlatformError) as error:
            if not check.optional:
                raise
            refused[check.name] = f"{type(error).__name__}: {error}"
        except (AssertionError, SandboxError, ToolError, OSError, ValueError, IndexError) as error:
            failed[check.name] = f"{type(error).__name__}: {error}"
        else:
            passed.append(check.name)
    return Report(passed=tuple(passed), failed=failed, refused=refused)
