"""Every error class of agar.

    AgarError
    ├── ConfigError (ValueError)         a recipe, flag or argument is wrong; nothing has started
    ├── MissingExtraError (ImportError)  an optional dependency is not installed
    ├── UnsupportedPlatformError (RuntimeError)  this machine lacks something (user namespaces, Python version, disk)
    ├── ShapeError (ValueError)          an array has the wrong shape, dtype or range
    ├── LedgerError (RuntimeError)       a token-record invariant would be broken
    │   └── SessionClosedError           a call arrived after its session was sealed
    ├── AuditError (RuntimeError)        a batch failed its audit and `audit = "strict"`
    ├── EnvError (RuntimeError)          an environment raised, hung or broke its contract
    ├── ToolError (RuntimeError)         a tool call failed; the agent sees the text
    ├── SandboxError (RuntimeError)      a sandbox could not start, or died
    │   └── ToolServerError              a tool server cannot be reached, or answers what cannot be understood
    ├── EngineError (RuntimeError)       an inference engine or router failed
    │   ├── EngineAborted                generation was aborted by the engine; retryable
    │   └── EngineRefused                the engine cannot serve this request, however often it is sent
    ├── TrainerError (RuntimeError)      the trainer failed
    ├── PublishError (RuntimeError)      weights did not reach the engines, or delivery could not be proven
    └── DeadlineError (TimeoutError)     a wait passed its deadline; names what it waited for

Raise with one message that says what was expected, what was got and what to do. Keep `__init__` to that single
string so that every class survives pickling across Ray and process pools.
"""


def to_install(extra: str) -> str:
    """How to get the packages of one of agar's extras, for the end of a message.

    agar is on no package index, where its name is another project's: it is installed from its sources.
    """
    return f"in a clone of agar, run `make env` or `python -m pip install -e '.[{extra}]'`"


class AgarError(Exception):
    """Base of every error that agar raises on purpose."""


class ConfigError(AgarError, ValueError):
    """A recipe, flag or argument is wrong; nothing has been started."""


class MissingExtraError(AgarError, ImportError):
    """An optional dependency is not installed; the message names the install command."""


class UnsupportedPlatformError(AgarError, RuntimeError):
    """The machine lacks something that the work needs; the message names it and the remedy."""


class ShapeError(AgarError, ValueError):
    """An array has the wrong shape, dtype or range."""


class LedgerError(AgarError, RuntimeError):
    """A token-record invariant would be broken."""


class SessionClosedError(LedgerError):
    """A model call arrived after its session was sealed."""


class AuditError(AgarError, RuntimeError):
    """A batch failed its audit under `audit = "strict"`."""


class EnvError(AgarError, RuntimeError):
    """An environment raised, hung or broke its contract."""


class ToolError(AgarError, RuntimeError):
    """A tool call failed in a way that the agent should read."""


class SandboxError(AgarError, RuntimeError):
    """A sandbox could not start, or died."""


class ToolServerError(SandboxError):
    """A tool server cannot be reached, failed, or answered what cannot be understood.

    A place where tools run, as a sandbox is, and nobody's fault either: whoever handles the one handles both.
    """


class EngineError(AgarError, RuntimeError):
    """An inference engine or the router failed."""


class EngineAborted(EngineError):
    """The engine aborted a generation (weights are being published, or it is draining); safe to retry."""


class EngineRefused(EngineError):
    """The engine cannot serve a request (a schema that it does not know, a prompt too long for it); not retryable."""


class TrainerError(AgarError, RuntimeError):
    """The trainer failed."""


class PublishError(AgarError, RuntimeError):
    """Weights did not reach the engines, or their delivery could not be proven."""


class DeadlineError(AgarError, TimeoutError):
    """A wait passed its deadline; the message names what was awaited and the last progress seen."""
