"""What a page needs to know of one episode, as JSON values."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from agar.ledger.audit import audit
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Excluded, emission
from agar.ledger.export.target import runs
from agar.ledger.node import Node
from agar.ledger.trace import Trace
from agar.recipe.page.words import Words
from agar.types import Ids, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode on the page.

    Attributes:
        summary: its line in the list.
        detail: everything else, read when it is opened.
    """

    summary: Mapping[str, Any]
    detail: Mapping[str, Any]


def episode_of(trace: Trace, record: RecordPolicy, words: Words, *, file: str) -> Episode:
    """What is shown of a trace; what became of its tokens is what `record` says.

    Args:
        trace: the episode.
        record: the run's record policy.
        words: collects the texts of its tokens.
        file: the name of its file, without the ending.
    """
    emitted = emission(trace, record)
    report = audit([trace], emitted.samples, record)
    kind, step = place(file)
    left_out: dict[int, list[Excluded]] = {}
    for run in emitted.excluded:
        left_out.setdefault(run.node, []).append(run)
    summary = {
        "file": file,
        "kind": kind,
        "step": step,
        "id": trace.trajectory,
        "role": trace.role,
        "policy": trace.policy,
        "env": trace.task.env,
        "outcome": trace.outcome.value,
        "reward": trace.reward.total,
        "turns": len(trace.nodes),
        "sampled": report.sampled_tokens,
        "trained": report.trained_tokens,
        "excluded": {reason.value: count for reason, count in report.excluded.items()},
        "divergences": len(trace.divergences),
        "violations": len(report.violations),
    }
    detail = {
        "reason": trace.reason,
        "parts": trace.reward.parts,
        "group": {"task": trace.group.task, "ordinal": trace.group.ordinal},
        "task": {"prompt": trace.task.prompt, "payload": trace.task.payload, "split": trace.task.split},
        "openCalls": trace.open_calls,
        "trainable": trace.trainable,
        "meta": trace.meta,
        "nodes": [_node(node, trace, left_out.get(node.id, []), words) for node in trace.nodes],
        "rows": [
            {
                "nodes": [span[0] for span in sample.meta["spans"]],
                "tokens": len(sample.token_ids),
                "trained": int(sample.loss_mask.sum()),
                "weight": sample.weight,
            }
            for sample in emitted.samples
        ],
        "divergences": [
            {"kind": d.kind.value, "node": d.node, "message": d.message, "kept": d.kept, "sent": d.sent}
            for d in trace.divergences
        ],
        "violations": [{"invariant": v.invariant, "detail": v.detail} for v in report.violations],
    }
    return Episode(summary=plain(summary), detail=plain(detail))


def place(file: str) -> tuple[str, int | None]:
    """What the name of a trace file says: `step-000003` is training step 3, `eval-000025-Hunt-v0` an evaluation."""
    kind, _, rest = file.partition("-")
    number = rest.partition("-")[0]
    if kind in {"step", "eval"} and number.isdecimal():
        return ("train" if kind == "step" else "eval"), int(number)
    return file, None


def plain(value: Any) -> Any:
    """A value that JSON has words for; numbers that are not finite become text."""
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _node(node: Node, trace: Trace, left_out: list[Excluded], words: Words) -> dict[str, Any]:
    reply = node.sampled
    return {
        "parent": node.parent,
        "edge": node.edge.value,
        "messages": [_message(message) for message in node.messages],
        "reply": _message(node.turn.message()),
        "parseError": node.turn.parse_error,
        "tools": [tool.name for tool in node.tools],
        "delta": _tokens(node.delta, words),
        "sampled": _tokens(reply.token_ids, words),
        "logprobs": [round(float(value), 4) for value in reply.logprobs],
        "versions": runs(reply.policy_versions),
        "excluded": [[run.start, run.stop, run.reason.value] for run in left_out],
        "finish": reply.finish.value,
        "reward": trace.turn_rewards.get(node.id),
        "requested": node.requested,
    }


def _tokens(ids: Ids, words: Words) -> dict[str, Any]:
    return {"ids": ids.tolist(), "texts": words.read(ids)}


def _message(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "text": message.text,
        "images": 0 if isinstance(message.content, str) else len(message.content) - _texts(message),
        "reasoning": message.reasoning,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls],
    }


def _texts(message: Message) -> int:
    return Counter(hasattr(part, "text") for part in message.content)[True]
