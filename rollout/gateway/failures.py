"""What went wrong with a call, before a dialect gives it a shape."""

import logging
from dataclasses import dataclass

from agar.errors import (
    AgarError,
    DeadlineError,
    EngineAborted,
    EngineError,
    EngineRefused,
    LedgerError,
    SessionClosedError,
)
from agar.rollout.gateway.call import BadRequest, BusyError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call that gets no reply.

    Attributes:
        status: HTTP status; clients repeat 5xx, not 4xx.
        message: for a person.
        code: short machine-readable reason.
        param: the field at fault, or None.
        retry: whether the same call may work in a moment.
    """

    status: int
    message: str
    code: str
    param: str | None = None
    retry: bool = False


UNKNOWN_KEY = Failure(
    status=401, message="no open session has this key: it was sealed, or never opened", code="invalid_api_key"
)


_STATUSES = {"response_not_found": 404, "request_timeout": 408, "request_too_large": 413, "unsupported_media_type": 415}


def failure_of(error: Exception) -> Failure:
    """The failure that an exception means; one that is not foreseen is logged and not told."""
    if isinstance(error, BadRequest):
        status = _STATUSES.get(error.code, 400)
        return Failure(status=status, message=str(error), code=error.code, param=error.param)
    if isinstance(error, BusyError):
        return Failure(status=429, message=str(error), code="rate_limit_exceeded", retry=True)
    if isinstance(error, SessionClosedError):
        return Failure(status=401, message=str(error), code="session_sealed")
    if isinstance(error, LedgerError):
        return Failure(status=400, message=str(error), code="cannot_record")
    if isinstance(error, RecursionError):
        return Failure(status=400, message="the request is nested too deeply", code="invalid_value")
    if isinstance(error, EngineAborted):
        return Failure(status=503, message=str(error), code="engine_aborted", retry=True)
    if isinstance(error, DeadlineError):
        return Failure(status=504, message=str(error), code="deadline")
    if isinstance(error, EngineRefused):
        return Failure(status=400, message=str(error), code="engine_refused")
    if isinstance(error, EngineError):
        return Failure(status=502, message=str(error), code="engine_error")
    logger.error("a model call failed", exc_info=error)
    detail = str(error) if isinstance(error, AgarError) else f"{type(error).__name__}: see the gateway's log"
    return Failure(status=500, message=detail, code="internal_error")
