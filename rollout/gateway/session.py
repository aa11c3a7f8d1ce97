"""One recording session: plan, generate, parse, commit; the same for HTTP callers and for callers in this process."""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agar.errors import DeadlineError, EngineAborted, SessionClosedError
from agar.ledger.config import RecordPolicy
from agar.ledger.families.base import Family
from agar.ledger.forest import Forest, Plan
from agar.ledger.node import Difference, Node
from agar.rollout.gateway.budget import Account, Budget, Limits
from agar.rollout.gateway.call import ModelCall, Reply
from agar.rollout.gateway.translation import MessageCache
from agar.types import Engine, Finish, Message, Sampled, Sampling, ToolCall, ToolSpec, Turn

logger = logging.getLogger(__name__)

_NONE = object()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SealedSession:
    """The record of a session that takes no more calls.

    Attributes:
        nodes: committed calls, in order.
        divergences: differences between histories sent and kept.
        open_calls: calls that were under way at the seal; their replies are in no node.
        budget_stops: calls that a budget answered, by budget.
        repeats: identical requests that were answered with a stored reply.
    """

    nodes: tuple[Node, ...]
    divergences: tuple[Difference, ...]
    open_calls: int = 0
    budget_stops: Mapping[Budget, int] = field(default_factory=dict)
    repeats: int = 0


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
        on_seal: Callable[["GatewaySession"], None] = lambda session: None,
    ) -> None:
        stop_ids = tuple(dict.fromkeys((*sampling.stop_token_ids, *family.stop_ids)))
        self._id, self._base_url, self._on_seal = id, base_url, on_seal
        self.policy = policy
        self.sampling = replace(sampling, stop_token_ids=stop_ids)
        self.messages = MessageCache()
        self._engine, self._family, self._call_timeout_s = engine, family, limits.call_timeout_s
        self._forest = Forest(family, record)
        self._tag = secrets.token_hex(8)  # names the session to routers and in reply ids: the key itself stays secret
        self._open: set[asyncio.Task[Reply]] = set()
        self._waiting: Counter[asyncio.Task[Reply]] = Counter()  # callers of a call under way
        self._replies: dict[bytes, asyncio.Task[Reply] | Reply] = {}  # by fingerprint; a task while it is under way
        self._sealed: SealedSession | None = None
        self._account = Account(limits, sampling.max_tokens, stop_when_cut=record.truncated == "stop")
        self._stops: Counter[Budget] = Counter()
        self._repeats = 0
        self._last_node: int | None = None

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

    def env(self) -> dict[str, str]:
        """Environment variables that point a program of OpenAI's or Anthropic's dialect at the gateway."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self.id,
            "ANTHROPIC_BASE_URL": self.base_url.removesuffix("/v1"),
            "ANTHROPIC_AUTH_TOKEN": self.id,
        }

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> Turn:
        """One recorded call without HTTP; see `call`. Cancelling it gives the call up."""
        return (await self.call(ModelCall(messages=tuple(messages), tools=tuple(tools)))).turn

    async def call(self, call: ModelCall) -> Reply:
        """Answer a call.

        A call with a fingerprint goes on if its caller leaves, unless it is a stream and nobody else waits. Identical
        ones join it while it is under way, then get its stored reply until something is built upon it.

        Raises:
            SessionClosedError: the session is, or was meanwhile, sealed.
            EngineError, DeadlineError: no reply; nothing is recorded.
            LedgerError: the messages cannot be rendered, or the record policy refuses them.
        """
        self._require_open()
        known = self._known(call.fingerprint)
        self._repeats += known is not None
        reply = known if isinstance(known, Reply) else await self._wait(call, known or self._start(call))
        if reply.node is not None:
            self._last_node = reply.node.id
        if call.remember:
            self.messages.remember(reply.id, (*call.messages, reply.turn.message()), call.tools)
        return reply

    def count(self, call: ModelCall) -> int:
        """How many tokens the prompt of a call has; records nothing.

        Raises:
            SessionClosedError: the session is sealed.
            LedgerError: the messages cannot be rendered, or the record policy refuses them.
        """
        self._require_open()
        return len(self._forest.plan(call.messages, call.tools, respelled=call.respelled).prompt)

    def seal(self) -> SealedSession:
        """End the session: revoke its key, cancel what is under way, and give its record. May be called again."""
        if self._sealed is None:
            open_calls = [task for task in self._open if not task.done() and not task.cancelling()]
            self._sealed = SealedSession(
                nodes=tuple(self._forest.nodes),
                divergences=tuple(self._forest.differences),
                open_calls=len(open_calls),
                budget_stops=dict(self._stops),
                repeats=self._repeats,
            )
            for task in open_calls:
                task.cancel()
            self._on_seal(self)
        return self._sealed

    # ---------------------------------------------------------------------------------------------- internals

    def _start(self, call: ModelCall) -> asyncio.Task[Reply]:
        task = asyncio.get_running_loop().create_task(self._answer(call))
        self._open.add(task)
        task.add_done_callback(self._finished)
        if call.fingerprint is not None:
            self._replies[call.fingerprint] = task
        return task

    async def _wait(self, call: ModelCall, task: asyncio.Task[Reply]) -> Reply:
        self._waiting[task] += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._sealed is not None and task.done():
                raise SessionClosedError("the session was sealed while the call was under way") from None
            if call.fingerprint is None or (call.stream and self._waiting[task] == 1):
                task.cancel()
            raise
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]

    async def _answer(self, call: ModelCall) -> Reply:
        budget = self._account.spent()
        if budget is not None:
            return self._stop(budget)
        self._account.turns += 1
        try:
            plan = self._forest.plan(call.messages, call.tools, respelled=call.respelled)
            room = self._account.room(len(plan.prompt))
            if room <= 0:
                self._account.turns -= 1
                return self._stop(Budget.CONTEXT)
            full = room == self.sampling.max_tokens
            sampling = self.sampling if full else replace(self.sampling, max_tokens=room)
            sampled = await self._generate(plan, sampling)
            self._require_open()
        except BaseException:
            self._account.turns -= 1
            raise
        reply = self._commit(call, plan, sampled, sampling)
        if call.fingerprint is not None:
            self._replies[call.fingerprint] = reply
        return reply

    async def _generate(self, plan: Plan, sampling: Sampling) -> Sampled:
        try:
            async with asyncio.timeout(self._call_timeout_s):
                return await self._engine.generate(plan.prompt, sampling, routing_key=self._tag)
        except DeadlineError:
            raise
        except TimeoutError as error:
            raise DeadlineError(
                f"no reply of policy {self.policy!r} to a prompt of {len(plan.prompt)} tokens within "
                f"{self._call_timeout_s:g} s: see the engine's log, or raise call_timeout_s"
            ) from error

    def _commit(self, call: ModelCall, plan: Plan, sampled: Sampled, sampling: Sampling) -> Reply:
        parsed = self._family.parse(sampled.token_ids)
        number = len(self._forest.nodes)
        turn = Turn(
            text=parsed.text,
            reasoning=parsed.reasoning,
            tool_calls=tuple(
                [
                    ToolCall(id=f"call_{number}_{i}", name=call.name, arguments=call.arguments)
                    for i, call in enumerate(parsed.tool_calls)
                ]
            ),
            finish=sampled.finish,
            parse_error=parsed.parse_error,
        )
        node = self._forest.commit(plan, sampled, turn, sampling=sampling, requested=self._refused_wishes(call))
        self._account.add(sampled)
        if sampled.finish is Finish.ABORT:
            raise EngineAborted(f"the engine aborted the reply after {len(sampled)} tokens: call again")
        return Reply(
            id=f"{self._tag}-{number}",
            turn=turn,
            node=node,
            budget=None,
            prompt_tokens=len(plan.prompt),
            created=int(time.time()),
        )

    def _refused_wishes(self, call: ModelCall) -> dict[str, Any]:
        """What the caller asked for and did not get."""
        wishes = {name: value for name, value in call.requested.items() if getattr(self.sampling, name, _NONE) != value}
        if call.model is not None and call.model != self.policy:
            wishes["model"] = call.model
        return wishes

    def _stop(self, budget: Budget) -> Reply:
        self._stops[budget] += 1
        return Reply(
            id=f"{self._tag}-stop-{self._stops.total()}",
            turn=Turn(finish=Finish.LENGTH),
            node=None,
            budget=budget,
            prompt_tokens=0,
            created=int(time.time()),
        )

    def _known(self, fingerprint: bytes | None) -> asyncio.Task[Reply] | Reply | None:
        """An identical call under way, or its reply where nothing was built upon it."""
        known = None if fingerprint is None else self._replies.get(fingerprint)
        if isinstance(known, asyncio.Task):
            # Done without a reply: it failed, or a budget answered. Being cancelled: its caller has left.
            return None if known.done() or known.cancelling() else known
        if known is None or known.node is None or self._forest.has_children(known.node.id):
            return None
        return known

    def _finished(self, task: asyncio.Task[Reply]) -> None:
        self._open.discard(task)
        if not task.cancelled() and task.exception() is not None:  # seen here, in case its caller has left
            logger.debug("a call of session %s failed: %r", self._tag, task.exception())

    def _require_open(self) -> None:
        if self._sealed is not None:
            raise SessionClosedError("the session is sealed and takes no more calls: open another")
