"""A reply as server-sent events.

What is certain of a reply is sent as it is sampled, the rest when the ledger has committed it; where nothing is certain
before, that is all of it. A caller that reads slowly makes nobody wait: what it has not taken becomes one event. Until
the first byte is out a failure is an ordinary error; afterwards it is an error event, and the connection is broken off:
a stream that ends cleanly without its finish would pass for a complete answer. A caller that leaves before the reply
ends the generation.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agar.rollout.gateway.call import ModelCall
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.failures import failure_of
from agar.rollout.gateway.live import LiveReply
from agar.rollout.gateway.session import GatewaySession


class _BrokenOffError(Exception):
    """The stream has begun and cannot be finished."""


async def stream_reply(
    receive: Receive, session: GatewaySession, call: ModelCall, dialect: Dialect, *, ping_s: float
) -> Response:
    """Answer a call with a stream.

    Args:
        receive: of the request, whose caller may leave; its body was read.
        session: answers.
        call: the call.
        dialect: shapes the events.
        ping_s: how long a stream may be silent.

    Raises:
        ClientDisconnect: the caller left before anything was sent.
        Exception: the call failed before anything was sent.
    """
    pieces = _pieces(receive, session, call, dialect, ping_s)
    return _EventResponse(await anext(pieces), pieces)


async def _pieces(
    receive: Receive, session: GatewaySession, call: ModelCall, dialect: Dialect, ping_s: float
) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    stir = asyncio.Event()
    lives: list[LiveReply] = []  # the one that it follows, once it is there

    def follow(live: LiveReply) -> None:
        live.watch(stir.set)
        lives.append(live)
        stir.set()  # another caller's reply may have come far already

    work = loop.create_task(session.call(call, follow=follow))
    gone = loop.create_task(_left(receive))
    for task in (work, gone):
        task.add_done_callback(lambda _: stir.set())
    events = dialect.events(call.model or session.policy, session.messages, usage=call.stream_usage)
    begun, silent_until_s = False, loop.time() + ping_s
    try:
        while not work.done():
            if gone.done():
                raise ClientDisconnect
            try:
                async with asyncio.timeout_at(silent_until_s):
                    await stir.wait()
            except TimeoutError:
                piece = dialect.ping
            else:
                stir.clear()
                piece = b"".join(map(events.more, lives))
            if piece:
                begun = True
                yield piece
                silent_until_s = loop.time() + ping_s
        try:
            piece = events.end(work.result())
        except Exception as error:
            if not begun:
                raise
            yield dialect.error_event(failure_of(error))
            raise _BrokenOffError from error
        yield piece
    finally:
        for live in lives:
            live.unwatch(stir.set)
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
