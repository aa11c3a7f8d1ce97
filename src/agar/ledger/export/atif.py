"""Episodes as trajectories of Harbor's ATIF (Agent Trajectory Interchange Format), version 1.7: one JSON file each.

ATIF is a list of steps. The forest of an episode is told as one trajectory for each path to a leaf: the one that the
first call belongs to is the document, the others (sub-agents, forks, retries, what came after a compaction) are its
`subagent_trajectories`. A call stands with its tokens in the first trajectory that holds it, and as
`is_copied_context` in the others. The field names are those of `harbor.models.trajectories` at harbor 0.26.0.
"""

import json
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agar.ledger.codec import plain
from agar.ledger.export.target import Episode, finite, runs
from agar.ledger.node import Node
from agar.ledger.trace import Trace
from agar.types import ImagePart, Message, ToolCall

SCHEMA = "ATIF-v1.7"
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
NOTES = "Forks, sub-agents, retries and what follows a compaction are in subagent_trajectories; see extra.agar."


class AtifTarget:
    """Writes one JSON file for each episode into a folder."""

    unread: Mapping[str, str] = {
        "rows": "ATIF has episodes, not training rows: their boundaries and weights are lost",
        "side": "per-token side arrays (routed experts and the like) are lost",
        "order": "calls of different branches stand one branch after the other; commit order is in extra.agar.node",
        "images": "images that are none of JPEG, PNG, GIF and WebP by their URL become text",
    }

    def __init__(self, out: Path) -> None:
        self._out = out
        self._files = 0

    def losses(self, episode: Episode) -> Iterable[str]:
        """What of the episode ATIF has no place for."""
        trace = episode.trace
        if episode.emission.samples:
            yield "rows"
        if any(node.sampled.side for node in trace.nodes):
            yield "side"
        if len(trace.leaves) > 1:
            yield "order"
        contents = [message.content for node in trace.nodes for message in node.messages]
        parts = [part for content in contents if not isinstance(content, str) for part in content]
        if any(isinstance(part, ImagePart) and _image_type(part) is None for part in parts):
            yield "images"

    def add(self, episode: Episode) -> int:
        """Write one episode; one without a single model call has no steps, and no file."""
        if not episode.trace.nodes:
            return 0
        text = json.dumps(document(episode), ensure_ascii=False, allow_nan=False)
        (self._out / f"{episode.batch}-{episode.number:06d}.json").write_text(text, "utf-8")
        self._files += 1
        return 1

    def close(self) -> int:
        """Nothing is left to write."""
        return self._files


def document(episode: Episode) -> dict[str, Any]:
    """The ATIF trajectory of an episode that has model calls."""
    trace = episode.trace
    left_out: dict[int, list[list[Any]]] = {}
    for run in episode.emission.excluded:
        left_out.setdefault(run.node, []).append([run.start, run.stop, run.reason.value])
    told: set[int] = set()
    main, *others = [_trajectory(trace, trace.path(leaf), told, left_out) for leaf in _leaves(trace)]
    main["trajectory_id"] = trace.trajectory
    main["notes"] = NOTES
    main["final_metrics"]["extra"] = {"reward": trace.reward.total, "reward_parts": dict(trace.reward.parts)}
    main["extra"]["agar"] |= {
        "batch": episode.batch,
        "group": [trace.group.task, trace.group.ordinal],
        "role": trace.role,
        "outcome": trace.outcome.value,
        "reason": trace.reason,
        "trainable": trace.trainable,
        "open_calls": trace.open_calls,
        "task": plain(trace.task),
        "divergences": plain(trace.divergences),
        "meta": plain(trace.meta),
    }
    if others:
        main["subagent_trajectories"] = others
    found: dict[str, Any] = finite(main)
    return found


def _leaves(trace: Trace) -> list[int]:
    """The leaves in the order in which their paths are told: first the newest of the first call's tree."""
    main = max(leaf for leaf in trace.leaves if trace.path(leaf)[0].id == 0)
    return [main, *(leaf for leaf in trace.leaves if leaf != main)]


def _trajectory(
    trace: Trace, path: Sequence[Node], told: set[int], left_out: Mapping[int, list[list[Any]]]
) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    mine = [node for node in path if node.id not in told]
    for node in path:
        copied = node.id in told
        for message in node.messages:
            _tell(message, steps, copied)
        steps.append(_reply(trace, node, left_out.get(node.id, []), copied))
    told.update(node.id for node in path)
    for number, step in enumerate(steps, start=1):
        step["step_id"] = number
    agent: dict[str, Any] = {"name": "agar", "version": version("agar"), "model_name": trace.policy}
    if path[0].tools:
        agent["tool_definitions"] = [{"type": "function", "function": plain(tool)} for tool in path[0].tools]
    return {
        "schema_version": SCHEMA,
        "session_id": trace.trajectory,
        "trajectory_id": f"{trace.trajectory}~{path[-1].id}",
        "agent": agent,
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": sum(len(trace.prompt(node.id)) for node in mine),
            "total_completion_tokens": sum(len(node.sampled) for node in mine),
            "total_steps": len(steps),
        },
        "extra": {"agar": {"nodes": [node.id for node in path], "root": path[0].edge.value}},
    }


def _tell(message: Message, steps: list[dict[str, Any]], copied: bool) -> None:
    """A message of a prompt: a step of its own, or a result of the step before it."""
    if message.role == "tool":
        if not steps or steps[-1]["source"] == "user":
            steps.append(_step("system", "", copied))
        step = steps[-1]
        ids = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        result: dict[str, Any] = {"content": _content(message)}
        if message.tool_call_id in ids:
            result["source_call_id"] = message.tool_call_id
        elif message.tool_call_id is not None:
            result["extra"] = {"tool_call_id": message.tool_call_id}
        step.setdefault("observation", {"results": []})["results"].append(result)
        return
    source = "agent" if message.role == "assistant" else message.role
    step = _step(source, _content(message), copied)
    if message.role == "assistant":
        _say(step, message.reasoning, message.tool_calls)
        step["extra"] = {"agar": {"sampled": False}}
    steps.append(step)


def _reply(trace: Trace, node: Node, left_out: list[list[Any]], copied: bool) -> dict[str, Any]:
    step = _step("agent", node.turn.text, copied)
    _say(step, node.turn.reasoning, node.turn.tool_calls)
    step["extra"] = {"agar": {"node": node.id, "parent": node.parent, "edge": node.edge.value, "choice": node.choice}}
    if copied:
        return step
    prompt, reply = trace.prompt(node.id), node.sampled
    step["llm_call_count"] = 1
    step["extra"]["agar"] |= {
        "sampling": plain(node.sampling),
        "requested": plain(node.requested),
        "parse_error": node.turn.parse_error,
        "prompt_digest": node.prompt_digest,
    }
    step["metrics"] = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(reply),
        "prompt_token_ids": prompt.tolist(),
        "completion_token_ids": reply.token_ids.tolist(),
        "logprobs": reply.logprobs.tolist(),
        "extra": {
            "finish": reply.finish.value,
            "policy_versions": runs(reply.policy_versions),
            "excluded": left_out,
            "reward": trace.turn_rewards.get(node.id),
        },
    }
    return step


def _step(source: str, message: Any, copied: bool) -> dict[str, Any]:
    step = {"step_id": 0, "source": source, "message": message}
    return step | {"is_copied_context": True} if copied else step


def _say(step: dict[str, Any], reasoning: str | None, calls: Sequence[ToolCall]) -> None:
    if reasoning is not None:
        step["reasoning_content"] = reasoning
    if calls:
        step["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": plain(call.arguments)} for call in calls
        ]


def _content(message: Message) -> Any:
    if isinstance(message.content, str):
        return message.content
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if not isinstance(part, ImagePart):
            parts.append({"type": "text", "text": part.text})
        elif (kind := _image_type(part)) is not None:
            parts.append({"type": "image", "source": {"media_type": kind, "path": part.url}})
        else:
            parts.append({"type": "text", "text": part.url})
    return parts


def _image_type(part: ImagePart) -> str | None:
    kind = part.url[5:].partition(";")[0] if part.url.startswith("data:") else mimetypes.guess_type(part.url)[0]
    return kind if kind in IMAGE_TYPES else None
