"""What must hold of a session after every step, found out without believing the ledger.

The oracle says which tokens may follow a prompt, HashLM what they cost under which weights, the chat template what the
tokens between them must read, the engine's side of the wire how many there are. Only then the ledger's own audit runs.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
from unruly.dialects import TOOLS, Said
from unruly.session import Played, Sent
from unruly.world import Delivered, World

from agar.ledger.audit import audit
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Emission, Exclusion, emission
from agar.ledger.families.chatml import SPECIAL_TOKENS, TEMPLATE
from agar.ledger.node import Node
from agar.ledger.trace import Trace
from agar.types import Finish, Sample


def _to_json(value: Any, **fields: Any) -> str:
    del fields
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_CLOSELY_EVERY_NODES = 4  # half of a step's time would go there
_TEMPLATES = jinja2.Environment(autoescape=False)
_TEMPLATES.filters["tojson"] = _to_json
_TEMPLATE = _TEMPLATES.from_string(TEMPLATE)


class Judge:
    """Checks sessions of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tokenizer = world.family.tokenizer
        self._marks = [self.tokenizer.added[text] for text in SPECIAL_TOKENS]

    # ------------------------------------------------------------------------------------------- one reply

    def reply(self, played: Played, sent: Sent) -> None:
        """A reply that came: its node, its place in the forest, its usage, the text of its prompt."""
        said = sent.said
        assert said is not None
        if said.live is not None:
            streamed = self.world.streamed[played.tag, said.live]
            (said.streamed_node,) = [node.id for node in played.nodes if node.sampled is streamed]
        if said.node is None:
            assert played.limited or played.policy.truncated == "stop", "a budget answered where there is none"
            assert said.cut
            assert (said.message, said.sampled_tokens) == ({"role": "assistant", "content": ""}, 0)
            return
        assert said.id.partition("-")[0] == played.tag, "a reply of another session"
        node = played.nodes[said.node]
        assert said.sampled_tokens == len(node.sampled)
        assert said.cut == (node.sampled.finish is Finish.LENGTH)
        self._told(said, node)
        if node.parent is None:
            prompt, new, tools = node.delta, sent.history, TOOLS
        else:
            path = played.path(node.parent)
            prompt, tools = node.delta, None
            new = sent.history[sum(len(at.messages) + 1 for at in path) :]
        assert said.prompt_tokens == sum(len(at.delta) + len(at.sampled) for at in played.path(node.id)[:-1]) + len(
            node.delta
        )
        closed = node.parent is None or _ends_in(played.nodes[node.parent].sampled.token_ids, self._marks[2])
        before = "" if node.parent is None else "\n" if closed else "<|im_end|>\n"
        self._rendering(prompt.tolist(), before, new, tools)
        self._place(played, sent, node)

    def _told(self, said: Said, node: Node) -> None:
        """What the client reads is what the engine sampled."""
        ids = node.sampled.token_ids.tolist()
        text = self.tokenizer.decode(ids[:-1] if ids and ids[-1] in self.world.family.stop_ids else ids)
        message = said.message
        calls = message.get("tool_calls") or []
        if not calls and "think>" not in text:
            assert message["content"] == text
        assert message["content"] in text or calls
        assert message.get("reasoning_content", "") in text
        assert len(calls) <= text.count("<tool_call>")
        assert all(call["function"]["name"] in text for call in calls)

    def _rendering(self, ids: list[int], before: str, new: list[dict[str, Any]], tools: Any) -> None:
        """I6: what was not sampled reads as the chat template has it, and only the template's marks are marks."""
        assert self.tokenizer.decode(ids) == before + _template(new, tools), "the prompt reads otherwise"
        bare = before + _template([_bare(message) for message in new], tools)
        counts = Counter(token for token in ids if token in self._marks)
        expected = {mark: bare.count(text) for mark, text in zip(self._marks, SPECIAL_TOKENS, strict=True)}
        assert counts == Counter({mark: n for mark, n in expected.items() if n}), "text became a control token"

    def _place(self, played: Played, sent: Sent, node: Node) -> None:
        if sent.tail is None or not _plain(played.policy):
            return
        assert node.parent is not None, "a history that was only respelt began a new root"
        here, there = _signature(played, node.parent), _signature(played, sent.tail)
        assert here == there, f"call {node.id} hangs below {node.parent}, its client went on from {sent.tail}"
        found = {(difference.kind, difference.node) for difference in played.differences}
        on_path = {at.id for at in played.path(node.parent)}
        missed = {(kind, at) for kind, at in sent.must if at in on_path} - found
        assert not missed, f"differences that nobody noticed: {missed}"

    # ------------------------------------------------------------------------------------------ one session

    def notable(self, played: Played) -> Counter[str]:
        """What is worth counting about a sealed session: proof that the rules bring about what they are named for."""
        assert played.sealed is not None
        result = emission(played.trace(), played.policy, version=self.world.gate.version)
        seen = Counter({"sessions": 1, "model calls": len(played.nodes), "repeats": played.sealed.repeats})
        seen["calls open at a seal"] = played.sealed.open_calls
        seen["trained tokens"] = sum(int(row.loss_mask.sum()) for row in result.samples)
        for node in played.nodes:
            versions = len(set(node.sampled.policy_versions.tolist()))
            seen["replies of several versions"] += versions > 1
            seen[f"edge {node.edge.value}"] += 1
            seen[f"finish {node.sampled.finish.value}"] += 1
        for run in result.excluded:
            seen[f"tokens left out: {run.reason.value}"] += run.stop - run.start
        for difference in played.differences:
            seen[f"difference {difference.kind.value}"] += 1
        for budget, count in played.sealed.budget_stops.items():
            seen[f"budget {budget.value}"] += count
        return seen

    def session(self, played: Played) -> None:
        """The whole record of a session, as it stands."""
        if played.dump and played.sealed:
            assert played.session.seal() is played.sealed
            assert played.trace().dump() == played.dump, "a sealed record changed"  # I12
            return
        trace = played.trace()
        delivered = self.world.delivered[played.tag]
        self._record(played, delivered)
        version = self.world.gate.version if played.policy.max_staleness is not None else None
        result = emission(trace, played.policy, version=version)
        self._rows(result.samples)
        self._conservation(played, result, version)
        kinds = {difference.kind for difference in played.differences} if _plain(played.policy) else set()
        assert kinds <= played.provoked, f"differences that nobody made: {kinds - played.provoked}"  # I9
        self._audit(played, trace, result, version)
        if played.sealed:
            played.dump = trace.dump()

    def _audit(self, played: Played, trace: Trace, result: Emission, version: int | None) -> None:
        """The ledger's own checks; rendering and reloading again (I6, I14) at every few nodes and at the seal."""
        closely = played.sealed is not None or len(trace.nodes) >= played.looked_closely_at + _CLOSELY_EVERY_NODES
        if closely:
            played.looked_closely_at = len(trace.nodes)
        report = audit(
            [trace],
            result.samples,
            played.policy,
            versions=None if version is None else {"main": version},
            families={"main": self.world.family},
            closely=None if closely else 0,
        )
        report.raise_if_broken()
        assert report.trained_tokens == sum(int(row.loss_mask.sum()) for row in result.samples)

    def _record(self, played: Played, delivered: Sequence[Delivered]) -> None:
        """I1, I3, I7, I8: the nodes are what passed between gateway and engine, each once and in order."""
        nodes = played.nodes
        if played.sealed is None:
            assert len(nodes) == len(delivered), f"{len(delivered)} replies of engines, {len(nodes)} nodes"
        assert len(nodes) <= len(delivered)
        trace = played.trace()
        for node, call in zip(nodes, delivered, strict=False):
            assert trace.prompt(node.id).tobytes() == call.prompt.tobytes(), "the recorded prompt is another"
            assert node.sampled.token_ids.tobytes() == call.sampled.token_ids.tobytes()
            assert node.sampled.logprobs.tobytes() == call.sampled.logprobs.tobytes()
            assert node.sampled.policy_versions.tobytes() == call.sampled.policy_versions.tobytes()
            text = self.tokenizer.decode(node.delta)
            assert text.count("secret-") == text.count(played.secret), "another session's text is in the prompt"

    def _rows(self, rows: Sequence[Sample]) -> None:
        """I1, I2, I3, I11 from the rows alone: the oracle says it, at this prefix, and no reply is trained twice."""
        used: Counter[tuple[bytes, tuple[int, ...]]] = Counter()
        for row in rows:
            for start, stop in _runs(row.loss_mask):
                names = [self.world.weights[int(version)] for version in row.policy_versions[start:stop]]
                scores = self.world.oracle.score(row.token_ids[:start], row.token_ids[start:stop], names)
                assert row.logprobs[start:stop].tobytes() == scores.tobytes(), "a log-prob of another prefix or weights"
                begin = self._begin(row, start, stop)
                used[row.token_ids[:begin].tobytes(), tuple(row.token_ids[begin:stop].tolist())] += 1
        for (prompt, reply), count in used.items():
            plans = self.world.oracle.replies(np.frombuffer(prompt, dtype=np.int32))
            assert count <= sum(tuple(plan[: len(reply)]) == reply for plan in plans), "a reply is trained twice"

    def _begin(self, row: Sample, start: int, stop: int) -> int:
        """Where the reply begins whose tokens are trained from `start`: there, unless its first ones are left out."""
        ids = row.token_ids
        for begin in range(start, max(0, start - 200), -1):
            reply = ids[begin:stop].tolist()
            if any(plan[: len(reply)] == reply for plan in self.world.oracle.replies(ids[:begin])):
                return begin
            if begin > 0 and row.loss_mask[begin - 1]:
                break
        raise AssertionError(f"no engine was ever to say the trained tokens {start} to {stop} on their prefix")

    def _conservation(self, played: Played, result: Emission, version: int | None) -> None:
        """I2: each sampled token is trained, or left out for a reason that the clients' side of the story bears out."""
        trained = sum(int(row.loss_mask.sum()) for row in result.samples)
        left_out = sum(run.stop - run.start for run in result.excluded)
        nodes = played.nodes
        assert trained + left_out == sum(len(node.sampled) for node in nodes)
        out: dict[int, set[Exclusion]] = {}
        for run in result.excluded:
            out.setdefault(run.node, set()).add(run.reason)
        parents = {node.parent for node in nodes}
        quarantined = played.sealed is not None and played.open_calls > 0
        if played.sealed is not None:
            assert played.sealed.open_calls == played.open_calls  # I12
        asked: dict[Any, list[int]] = defaultdict(list)
        for node in nodes:
            asked[_question(node)].append(node.id)
        newest_child = {node.parent: node.id for node in nodes}
        for node in nodes:
            if not len(node.sampled):
                continue
            reasons = out.get(node.id, set())
            others = asked[_question(node)]
            passed_over = others[-1] > node.id or any(newest_child.get(other, -1) > node.id for other in others)
            leaf = node.id not in parents
            if quarantined:
                assert reasons == {Exclusion.QUARANTINED}
            elif leaf and passed_over and played.policy.abandoned == "exclude":
                assert reasons == {Exclusion.ABANDONED_RETRY}, f"node {node.id} was passed over: {reasons}"
            elif reasons == {Exclusion.ABANDONED_RETRY}:  # asked again in other words that mean the same
                assert leaf
                assert sum(other.parent == node.parent for other in nodes) > 1
            elif node.sampled.finish is Finish.LENGTH and played.policy.truncated == "exclude":
                assert reasons == {Exclusion.TRUNCATED_POLICY}
            else:
                stale = version is not None and (
                    node.sampled.policy_versions < version - (played.policy.max_staleness or 0)
                )
                assert reasons == ({Exclusion.STALE_WEIGHTS} if np.any(stale) else set())
        if quarantined:
            assert result.samples == ()


def _plain(policy: RecordPolicy) -> bool:
    """Whether a history that was only respelt goes on where it was."""
    return (policy.match, policy.on_divergence, policy.history) == ("canonical", "record", "as_sampled")


def _template(messages: Sequence[Mapping[str, Any]], tools: Any) -> str:
    rows = []
    for message in messages:
        row = {**message, "content": _text(message)}
        if row.get("tool_calls"):
            row["tool_calls"] = [
                {"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])}
                for c in row["tool_calls"]
            ]
        rows.append(row)
    functions = [{key: tool["function"][key] for key in ("name", "description", "parameters")} for tool in tools or ()]
    return str(_TEMPLATE.render(messages=rows, tools=functions, add_generation_prompt=True))


def _bare(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with nothing in its texts that could be taken for a mark."""
    bare = {**message, "content": "x" if _text(message) else ""}
    if bare.get("reasoning_content"):
        bare["reasoning_content"] = "x"
    if bare.get("tool_calls"):
        bare["tool_calls"] = [{"function": {"name": "x", "arguments": "{}"}} for _ in bare["tool_calls"]]
    return bare


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _signature(played: Played, node: int) -> list[Any]:
    """What a path says, as far as two programs could tell."""
    said: list[Any] = []
    for at in played.path(node):
        said += [sorted((m.role, m.text.rstrip(), m.tool_call_id or "") for m in at.messages)]
        calls = [(call.name, json.dumps(call.arguments, sort_keys=True)) for call in at.turn.tool_calls]
        said += [(at.turn.text.rstrip(), calls)]
    return said


def _question(node: Node) -> tuple[Any, ...]:
    """Equal for calls that ask the same at the same place; prompts do not show which call a result belongs to."""
    return node.parent, node.delta.tobytes(), tuple(sorted(m.tool_call_id or "" for m in node.messages))


def _ends_in(ids: Any, token: int) -> bool:
    return len(ids) > 0 and int(ids[-1]) == token


def _runs(flags: Any) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
