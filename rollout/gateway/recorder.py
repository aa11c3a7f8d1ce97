"""What a session records of a call: how it is sampled, its nodes in the forest, and the reply made of them."""

import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from agar.errors import EngineAborted, LedgerError
from agar.ledger.config import RecordPolicy
from agar.ledger.families.base import Family
from agar.ledger.forest import Forest, Plan
from agar.ledger.images import images_of, with_placeholders
from agar.ledger.node import Edge
from agar.rollout.gateway.answers import turn_of
from agar.rollout.gateway.budget import Budget
from agar.rollout.gateway.call import BadRequest, ModelCall, Reply
from agar.rollout.gateway.live import LiveReply
from agar.types import Engine, Finish, Sampled, Sampling, SeeingEngine, TellingEngine, Turn

_NONE = object()
_MAX_KEPT_BYTES = 256 * 1024
_SHOWN_CHARACTERS = 80


class Recorder:
    """The record of one session.

    Args:
        family: renders and parses.
        policy: name of the policy that answers.
        sampling: pinned for every call; the family's stop tokens are added.
        record: how it records.

    Attributes:
        forest: the nodes.
        sampling: as pinned.
        tag: names the session to routers and in the ids of replies; the key itself stays secret.
        stops: calls that a budget answered.
    """

    def __init__(self, *, family: Family, policy: str, sampling: Sampling, record: RecordPolicy) -> None:
        stop_ids = tuple(dict.fromkeys((*sampling.stop_token_ids, *family.stop_ids)))
        self._family, self._policy, self._record = family, policy, record
        self.forest = Forest(family, record)
        self.sampling = replace(sampling, stop_token_ids=stop_ids)
        self.tag = secrets.token_hex(8)
        self.stops: Counter[Budget] = Counter()
        self._begun = 0

    def samplings(self, call: ModelCall, room: int) -> list[Sampling]:
        """How each reply is sampled: as pinned, but for its length, and what ends or constrains it.

        Raises:
            BadRequest: the record policy does not serve the form of output that the call asks for.
        """
        changes: dict[str, Any] = {} if room == self.sampling.max_tokens else {"max_tokens": room}
        if call.stop:
            changes["stop"] = (*self.sampling.stop, *call.stop)
        if call.form is not None and self._record.output_form == "refuse":
            text = f"{call.form.field} is not served in this session: leave it out, or set ledger.record.output_form"
            raise BadRequest(text, call.form.field, "unsupported_value")
        if call.form is not None and self._record.output_form == "constrain":
            changes["json_schema"] = call.form.schema
        pinned = replace(self.sampling, **changes) if changes else self.sampling
        if call.n == 1 or pinned.seed is None:
            return [pinned] * call.n
        return [replace(pinned, seed=pinned.seed + choice) for choice in range(call.n)]  # one seed, one reply

    def wishes(self, call: ModelCall, plan: Plan) -> dict[str, Any]:
        """What the caller asked for and does not get; of its messages, from the reply on that it goes on from.

        Raises:
            BadRequest: it is more than the record keeps of a call.
        """
        wishes = {name: value for name, value in call.requested.items() if getattr(self.sampling, name, _NONE) != value}
        known = len(call.messages) - len(plan.messages) - 1
        wishes |= {place: fields for place, (at, fields) in call.unknown.items() if at >= known}
        if call.form is not None and self._record.output_form == "ignore":
            wishes[call.form.field] = call.form.asked
        if call.model is not None and call.model != self._policy:
            wishes["model"] = call.model
        if wishes:
            _require_small(wishes)
        return wishes

    def begin(self, live: LiveReply, call: ModelCall, plan: Plan) -> None:
        """Let a reply be followed, where its family can read it while it is sampled."""
        growing = self._family.grow(call.tools, prompt=plan.prompt, holds=call.stop)
        if growing is not None:
            self._begun += 1
            live.begin(f"{self.tag}-live-{self._begun}", len(plan.prompt), growing)

    async def ask(self, engine: Engine, plan: Plan, sampling: Sampling, live: LiveReply | None = None) -> Sampled:
        """Ask the engine for a reply to the planned prompt.

        Raises:
            LedgerError: the prompt holds images and the engine takes none.
        """
        images = self._images(plan)
        if live is not None and isinstance(engine, TellingEngine) and (not images or isinstance(engine, SeeingEngine)):
            return await engine.generate_telling(
                plan.prompt, sampling, images=images, routing_key=self.tag, tell=live.tell
            )
        if not images:
            return await engine.generate(plan.prompt, sampling, routing_key=self.tag)
        if not isinstance(engine, SeeingEngine):
            raise LedgerError(f"the prompt holds {len(images)} images and this engine takes none: leave them out")
        return await engine.generate_seeing(plan.prompt, sampling, images=images, routing_key=self.tag)

    def commit(
        self,
        call: ModelCall,
        plan: Plan,
        sampled: Sequence[Sampled],
        samplings: Sequence[Sampling],
        requested: Mapping[str, Any],
    ) -> Reply:
        """Record every reply, side by side, and with them the `wishes` of the call.

        Where the engine aborted one, the caller gets none of them.
        """
        again = replace(plan, edge=Edge.REWRITTEN) if plan.parent is None and len(sampled) > 1 else plan
        replies = [
            self._commit_one(call, again if choice else plan, reply, samplings[choice], requested, choice)
            for choice, reply in enumerate(sampled)
        ]
        if aborted := [reply for reply in sampled if reply.finish is Finish.ABORT]:
            raise EngineAborted(f"the engine aborted the reply after {len(aborted[0])} tokens: call again")
        return replace(replies[0], others=tuple(replies[1:])) if len(replies) > 1 else replies[0]

    def stop(self, budget: Budget, replies: int) -> Reply:
        """The reply of a budget."""
        self.stops[budget] += 1
        reply = Reply(
            id=f"{self.tag}-stop-{self.stops.total()}",
            turn=Turn(finish=Finish.LENGTH),
            node=None,
            budget=budget,
            prompt_tokens=0,
            created=int(time.time()),
        )
        return replace(reply, others=(reply,) * (replies - 1)) if replies > 1 else reply

    def _commit_one(
        self,
        call: ModelCall,
        plan: Plan,
        sampled: Sampled,
        sampling: Sampling,
        requested: Mapping[str, Any],
        choice: int,
    ) -> Reply:
        number, text_of = len(self.forest.nodes), self._family.tokenizer.decode
        sampled = with_placeholders(sampled, plan.delta, self._family.image_token)
        name = f"call_{number}"  # unique in the session
        parsed = self._family.parse(sampled.token_ids, call.tools, prompt=plan.prompt, call_id=name)
        turn, stopped_by = turn_of(parsed, sampled.finish, call)
        node = self.forest.commit(plan, sampled, turn, sampling=sampling, requested=requested, choice=choice)
        return Reply(
            id=f"{self.tag}-{number}",
            turn=turn,
            node=node,
            budget=None,
            prompt_tokens=len(plan.prompt),
            created=int(time.time()),
            stopped_by=stopped_by,
            tokens=tuple([text_of([token]) for token in sampled.token_ids.tolist()]) if call.logprobs else None,
        )

    def _images(self, plan: Plan) -> tuple[str, ...]:
        """The images of a whole prompt, in order."""
        if self._family.image_token is None:
            return ()
        found, at = [images_of(plan.messages)], plan.parent
        while at is not None:
            node = self.forest.nodes[at]
            found.append(images_of(node.messages))
            at = node.parent
        return tuple(url for some in reversed(found) for url in some)


def _require_small(wishes: Mapping[str, Any]) -> None:
    """Refuse to keep more than a little: a call is charged for its tokens, and the record lies in memory."""
    sizes = {name: len(name) + len(orjson.dumps(value, default=repr)) for name, value in wishes.items()}
    if (size := sum(sizes.values())) > _MAX_KEPT_BYTES:
        largest = max(sizes, key=sizes.__getitem__)[:_SHOWN_CHARACTERS]
        raise BadRequest(
            f"what a call asks for and does not get is kept in the record, up to {_MAX_KEPT_BYTES} bytes of it; got "
            f"{size}, most of them in {largest!r}: leave that out, or shorten it",
            largest,
        )
