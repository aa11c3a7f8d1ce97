"""A reply as server-sent events.

The ledger commits whole replies, so a stream waits for its reply and then sends all of it. Until the first byte is out
a failure is an ordinary error; afterwards it is an error event, and the connection is broken off: a stream that ends
cleanly without its finish would pass for a complete answer. A caller that leaves before the reply ends the generation.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agar.rollout.gateway.call import ModelCall
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.failures import failure_of
from agar.rollout.gateway.session import GatewaySession


class _BrokenOffError(Exception):
    """The stream has begun and cannot be finished."""


async def stream_reply(
    request: Request, session: GatewaySession, call: ModelCall, dialect: Dialect, *, ping_s: float
) -> Response:
    """Answer a call with a stream.

    Args:
        request: whose caller may leave; its body was read.
        session: answers.
        call: the call.
        dialect: shapes the events.
        ping_s: how long a stream may be silent.

    Raises:
        ClientDisconnect: the caller left before anything was sent.
        Exception: the call failed before anything was sent.
    """
    pieces = _pieces(request.receive, session, call, dialect, ping_s)
    return _EventResponse(await anext(pieces), pieces)


async def _pieces(
    receive: Receive, session: GatewaySession, call: ModelCall, dialect: Dialect, ping_s: float
) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    work = loop.create_task(session.call(call))
    gone = loop.create_task(_left(receive))
    begun = False
    try:
        while True:
            await asyncio.wait({work, gone}, timeout=ping_s, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                break
            if gone.done():
                raise ClientDisconnect
            begun = True
            yield dialect.ping
        try:
            reply = work.result()
        except Exception as error:
            if not begun:
                raise
            yield dialect.error_event(failure_of(error))
            raise _BrokenOffError from error
        yield dialect.events(reply, call.model or session.policy, session.messages, usage=call.stream_usage)
    finally:
        for task in (work, gone):
            task.cancel()  # no-op where it is done
        await asyncio.wait({work, gone})
        if not work.cancelled():
            work.exception()  # seen, in case nobody is left to tell


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _EventResponse(Response):
    def __init__(self, first: bytes, rest: AsyncGenerator[bytes]) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(media_type="text/event-stream", headers=headers)
        del self.headers["content-length"]
        self._first, self._rest = first, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._rest):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            try:
                async for piece in self._rest:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except (ClientDisconnect, _BrokenOffError):
                return  # the server closes a connection whose response has no end
            await send({"type": "http.response.body", "body": b"", "more_body": False})
