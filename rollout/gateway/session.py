"""One recording session: plan, generate, parse, commit; the same for HTTP callers and for callers in this process."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from agar.errors import AgarError, DeadlineError, EngineAborted, EngineError, EngineRefused, SessionClosedError
from agar.ledger.config import RecordPolicy
from agar.ledger.families.base import Family
from agar.ledger.forest import Plan
from agar.rollout.gateway.budget import Account, Budget, Limits
from agar.rollout.gateway.call import BadRequest, ModelCall, Reply
from agar.rollout.gateway.in_flight import InFlight
from agar.rollout.gateway.live import LiveReply
from agar.rollout.gateway.recorder import Recorder
from agar.rollout.gateway.sealed import SealedSession
from agar.rollout.gateway.translation import MessageCache
from agar.rollout.gateway.under_way import UnderWay, closed_under_way
from agar.serving.deadlines import Deadlines
from agar.types import Engine, Message, Sampled, Sampling, TellingEngine, ToolSpec, Turn

logger = logging.getLogger(__name__)


class _OutOfTimeError(Exception):
    """The session's wall clock ran out under a call."""


class GatewaySession:
    """A session; implements `SessionAccess`. Made by `Gateway.open`.

    Args:
        id: the session key.
        policy: name of the policy that answers.
        engine: samples.
        family: renders and parses.
        sampling: pinned for every call; the family's stop tokens are added.
        limits: budgets.
        record: how it records.
        base_url: the gateway's OpenAI base URL.
        socket_path: the gateway's unix socket.
        in_flight: counts the generations of every session.
        deadlines: of the calls of every session, as long as `limits.call_timeout_s`.
        on_seal: called once, when the session is sealed.
    """

    def __init__(
        self,
        *,
        id: str,
        policy: str,
        engine: Engine,
        family: Family,
        sampling: Sampling,
        limits: Limits,
        record: RecordPolicy,
        base_url: str,
        socket_path: Path | None = None,
        in_flight: InFlight | None = None,
        deadlines: Deadlines | None = None,
        on_seal: Callable[["GatewaySession"], None] = lambda session: None,
    ) -> None:
        self._id, self._base_url, self._on_seal = id, base_url, on_seal
        self.socket_path = socket_path
        self.policy, self._family = policy, family.name
        self.messages, self._abandoned = MessageCache(), False
        self._engine, self._call_timeout_s = engine, limits.call_timeout_s
        self._recorder = Recorder(family=family, policy=policy, sampling=sampling, record=record)
        self._forest = self._recorder.forest
        self._in_flight = InFlight("this session", limits.calls_in_flight, in_flight)
        self._deadlines = deadlines or Deadlines(limits.call_timeout_s)
        self._open: set[UnderWay] = set()
        self._replies: dict[bytes, UnderWay | Reply] = {}  # by fingerprint
        self._sealed: SealedSession | None = None
        self._hung_up = False
        self._account = Account(limits, sampling.max_tokens, stop_when_cut=record.truncated == "stop")
        self._repeats = 0
        self._last_node: int | None = None
        self._failure: AgarError | None = None

    @property
    def id(self) -> str:
        """The session key."""
        return self._id

    @property
    def base_url(self) -> str:
        """The OpenAI base URL, ending in `/v1`; needs the key as the API key."""
        return self._base_url

    @property
    def path_url(self) -> str:
        """The base URL with the key in its path, for programs that cannot be given an API key."""
        return f"{self._base_url.removesuffix('/v1')}/s/{self._id}/v1"

    @property
    def chat(self) -> "GatewaySession":
        """The same ledger without HTTP."""
        return self

    @property
    def last_node(self) -> int | None:
        """The node whose reply the caller got last, to bind a turn's reward to; None before the first."""
        return self._last_node

    @property
    def replies(self) -> int:
        """Replies recorded so far."""
        return len(self._forest.nodes)

    @property
    def failure(self) -> AgarError | None:
        """Why the latest call got no reply, where an engine or a deadline failed it; None where it got one."""
        return self._failure

    def env(self, *, base_url: str | None = None) -> dict[str, str]:
        """Variables that point a program of OpenAI's or Anthropic's dialect here, or at `base_url` (with `/v1`)."""
        url = base_url or self.base_url
        openai = {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": self.id}
        return openai | {"ANTHROPIC_BASE_URL": url.removesuffix("/v1"), "ANTHROPIC_AUTH_TOKEN": self.id}

    def hang_up(self) -> None:
        """Give up the calls under way, whose callers are gone for good; nobody retries the ones before them either.

        A call whose caller has gone may still be on its way here: until `pick_up` none is taken.
        """
        self._hung_up = True
        for under_way in self._open:
            under_way.give_up()
        self._replies.clear()

    def pick_up(self) -> None:
        """Take calls again, of another run of the program that calls."""
        self._hung_up = False

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> Turn:
        """One recorded call without HTTP; see `call`. Cancelling it gives the call up."""
        return (await self.call(ModelCall(messages=tuple(messages), tools=tuple(tools)))).turn

    async def call(
        self, call: ModelCall, *, stays: bool = False, follow: Callable[[LiveReply], None] | None = None
    ) -> Reply:
        """Answer a call.

        A call with a fingerprint goes on if its caller leaves, unless it is a stream and nobody else waits. Identical
        ones join it while it is under way, then get its stored reply until something is built upon it.

        Args:
            call: the call.
            stays: nothing cancels the caller's task while its call is under way, so the call needs no other to go on.
            follow: given the reply on its way, where it is a stream's and under way.

        Raises:
            SessionClosedError: the session is, or was meanwhile, sealed.
            BusyError: too many calls are under way.
            BadRequest: the session does not serve what the call asks for.
            EngineError, DeadlineError: no reply; nothing is recorded.
            LedgerError: the messages cannot be rendered, or the record policy refuses them.
        """
        self._require_open()
        known = self._known(call.fingerprint)
        self._repeats += known is not None
        if isinstance(known, Reply):
            reply = known
        elif known is None and not call.stream and (stays or call.fingerprint is None):
            reply = await self._host(call)
        else:
            reply = await self._join(call, known or self._start(call), follow)
        if reply.node is not None:
            self._last_node = reply.node.id
        if call.remember is not None:
            said = (*call.messages[call.remember :], reply.turn.message())
            self.messages.remember(reply, call.model or self.policy, said, call.tools)
        return reply

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Around a `count` and the arrival of its request: it takes the room of one call.

        Raises:
            BusyError: too many calls are under way.
        """
        self._in_flight.enter(1)
        try:
            yield
        finally:
            self._in_flight.leave(1)

    def count(self, call: ModelCall) -> int:
        """How many tokens the prompt of a call has; records nothing.

        Raises:
            SessionClosedError: the session is sealed.
            LedgerError: the messages cannot be rendered, or the record policy refuses them.
        """
        self._require_open()
        return len(self._forest.plan(call.messages, call.tools, respelled=call.respelled).prompt)

    @property
    def abandoned(self) -> bool:
        """Whether its record is wanted by nobody."""
        return self._abandoned

    def abandon(self) -> None:
        """End the session as `seal` does, for an episode that is given up: its record is counted and dropped."""
        if self._sealed is None:
            self._abandoned = True
            self.seal()

    def seal(self) -> SealedSession:
        """End the session: revoke its key, cancel what is under way, and give its record. May be called again."""
        if self._sealed is None:
            open_calls = [under_way for under_way in self._open if not (under_way.done or under_way.given_up)]
            self._sealed = SealedSession(
                nodes=tuple(self._forest.nodes),
                divergences=tuple(self._forest.differences),
                open_calls=len(open_calls),
                budget_stops=dict(self._recorder.stops),
                repeats=self._repeats,
                refused=self._in_flight.refused,
                family=self._family,
            )
            for under_way in open_calls:
                under_way.give_up()
            self._on_seal(self)
        return self._sealed

    # ---------------------------------------------------------------------------------------------- internals

    def _begin(self, call: ModelCall) -> UnderWay:
        if call.n > self._in_flight.most:
            raise BadRequest(f"n must be at most {self._in_flight.most} in this session, got {call.n}", "n")
        self._in_flight.enter(call.n)
        lives = call.stream and call.n == 1 and isinstance(self._engine, TellingEngine)
        under_way = UnderWay(call, LiveReply() if lives else None)
        self._open.add(under_way)
        if call.fingerprint is not None:
            self._replies[call.fingerprint] = under_way
        return under_way

    async def _host(self, call: ModelCall) -> Reply:
        """Answer a call in its caller's task, with which it ends."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a model call needs a task to run in")
        under_way, cancelling = self._begin(call), task.cancelling()
        under_way.task, under_way.hosted = task, True
        try:
            reply = await self._answer(call, None)
        except BaseException as error:
            self._end(under_way, None, error)
            if under_way.given_up and task.uncancel() <= cancelling and isinstance(error, asyncio.CancelledError):
                raise closed_under_way() from None
            raise
        self._end(under_way, reply)
        if under_way.given_up:  # too late
            task.uncancel()
        return reply

    def _start(self, call: ModelCall) -> UnderWay:
        """Answer a call in a task of its own."""
        under_way = self._begin(call)
        task = asyncio.get_running_loop().create_task(self._answer(call, under_way.live))
        task.add_done_callback(functools.partial(self._finished, under_way))
        under_way.task = task
        return under_way

    async def _join(self, call: ModelCall, under_way: UnderWay, follow: Callable[[LiveReply], None] | None) -> Reply:
        if follow is not None and under_way.live is not None:
            follow(under_way.live)
        try:
            return await under_way.wait()
        except asyncio.CancelledError:
            if call.fingerprint is None or (call.stream and not under_way.callers):
                under_way.give_up()
            raise

    async def _answer(self, call: ModelCall, live: LiveReply | None) -> Reply:
        budget = self._account.spent()
        if budget is not None:
            return self._recorder.stop(budget, call.n)
        self._account.turns += 1
        try:
            plan = self._forest.plan(call.messages, call.tools, respelled=call.respelled)
            room = self._account.room(len(plan.prompt), call.n)
            if room <= 0:
                self._account.turns -= 1
                crowded = self._account.room(0, call.n) > 0
                return self._recorder.stop(Budget.CONTEXT if crowded else Budget.TOKENS, call.n)
            samplings, wishes = self._recorder.samplings(call, room), self._recorder.wishes(call, plan)
            if live is not None:
                self._recorder.begin(live, call, plan)
            sampled = await self._generate(plan, samplings, live)
            self._require_open()
        except _OutOfTimeError:
            self._account.turns -= 1
            stop = self._recorder.stop(Budget.WALL_CLOCK, call.n)
            return stop if live is None else live.end(stop)
        except BaseException as error:
            if live is not None and live.told and isinstance(error, asyncio.CancelledError):
                # Its last caller has read it and left; were that free, budgets would bind nobody.
                self._account.tokens += live.told
            else:
                self._account.turns -= 1
            raise
        for reply in sampled:
            self._account.add(reply)
        try:
            answer = self._recorder.commit(call, plan, sampled, samplings, wishes)
        except EngineAborted:
            self._account.turns -= 1  # it is in the record, but the caller has had no turn
            raise
        if live is not None:
            answer = live.end(answer)
        if call.fingerprint is not None:
            self._replies[call.fingerprint] = answer
        return answer

    async def _generate(self, plan: Plan, samplings: Sequence[Sampling], live: LiveReply | None) -> list[Sampled]:
        left_s = self._account.left_s()
        try:
            with self._deadlines.within(min(self._call_timeout_s, left_s)):
                if len(samplings) == 1:
                    return [await self._recorder.ask(self._engine, plan, samplings[0], live)]
                return await _all([self._recorder.ask(self._engine, plan, how, live) for how in samplings])
        except DeadlineError:
            raise
        except TimeoutError as error:
            if left_s <= self._call_timeout_s:
                raise _OutOfTimeError from error
            raise DeadlineError(
                f"no reply of policy {self.policy!r} to a prompt of {len(plan.prompt)} tokens within "
                f"{self._call_timeout_s:g} s: see the engine's log, or raise call_timeout_s"
            ) from error

    def _known(self, fingerprint: bytes | None) -> UnderWay | Reply | None:
        """An identical call under way, or its reply where nothing was built upon it."""
        known = None if fingerprint is None else self._replies.get(fingerprint)
        if isinstance(known, UnderWay):
            # Done without a reply: it failed, or a budget answered. Given up: its caller has left.
            return None if known.done or known.given_up else known
        if known is None or any(reply.node and self._forest.has_children(reply.node.id) for reply in known.choices):
            return None
        return known

    def _finished(self, under_way: UnderWay, task: asyncio.Task[Reply]) -> None:
        if task.cancelled():
            self._end(under_way, None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:  # seen here, in case its caller has left
            self._end(under_way, None, error)
        else:
            self._end(under_way, task.result())

    def _end(self, under_way: UnderWay, reply: Reply | None, error: BaseException | None = None) -> None:
        call = under_way.call
        self._in_flight.leave(call.n)
        self._open.discard(under_way)
        under_way.end(reply, error)
        if call.fingerprint is not None and self._replies.get(call.fingerprint) is under_way:
            del self._replies[call.fingerprint]  # no reply: it failed, was given up, or a budget answered
        if isinstance(error, asyncio.CancelledError):
            return
        refused = isinstance(error, EngineRefused)  # the caller's fault: it could void an episode that it loses
        self._failure = error if isinstance(error, (EngineError, DeadlineError)) and not refused else None
        if error is not None:
            logger.debug("a call of session %s failed: %r", self._recorder.tag, error)

    def _require_open(self) -> None:
        if self._sealed is not None:
            raise SessionClosedError("the session is sealed and takes no more calls: open another")
        if self._hung_up:
            raise SessionClosedError("the program whose session this is has ended: its calls are taken no more")


async def _all(replies: Sequence[Coroutine[Any, Any, Sampled]]) -> list[Sampled]:
    """Every reply; the first failure ends the others."""
    tasks = [asyncio.get_running_loop().create_task(reply) for reply in replies]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
