"""Training rows as slime's `Sample`: one `N.pt` a batch, as `--load-debug-rollout-data 'OUT/{rollout_id}.pt'` reads it.

The field names are those of `slime/utils/types.py` at version 0.3.1.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agar.errors import MissingExtraError, to_install
from agar.ledger.export.target import Episode, prompt_length, provenance
from agar.types import GroupId, Message, Outcome, Sample

STATUS: Mapping[Outcome, str] = {
    Outcome.COMPLETED: "completed",
    Outcome.TRUNCATED: "truncated",
    Outcome.AGENT_ERROR: "failed",
}
"""slime's status of each outcome that is trained on."""

TAKEN = {"kept_vocabulary", "teacher_logprobs"}
"""Side arrays that slime has fields for."""


class SlimeTarget:
    """Writes `0.pt`, `1.pt`, ... into a folder: `{"rollout_id": N, "samples": [...]}`.

    Raises:
        MissingExtraError: PyTorch, whose file format this is, is not installed.
    """

    unread: Mapping[str, str] = {
        "turn_rewards": "slime has one reward for a row; each turn's is in metadata['agar'], which it does not read",
        "policy_versions": "slime has a list of versions for a row; each token's is in metadata['agar']",
        "excluded": "sampled tokens that are not trained are context or in no row; the reasons are in metadata['agar']",
        "tool_calls": "messages of the prompt are role and text: calls and tool definitions are lost",
        "images": "messages of the prompt are role and text: images are lost",
        "side": "side arrays but the kept vocabulary and a teacher's log-probs are lost (slime wants routed experts of "
        "every token; an engine's reply has those of its own)",
        "divergences": "differences between the histories sent and kept are lost",
        "response": "its text is left empty: the tokens are what was sampled",
    }

    def __init__(self, out: Path) -> None:
        try:
            import torch
        except ImportError as error:
            raise MissingExtraError(f"slime reads files of PyTorch's: {to_install('trainer')}") from error
        self._save = torch.save
        self._out = out
        self._batch: str | None = None
        self._rows: list[dict[str, Any]] = []
        self._groups: dict[tuple[str, GroupId, str], int] = {}  # batch, group, role -> number
        self._files = 0

    def losses(self, episode: Episode) -> Iterable[str]:
        """What of the episode slime will not see."""
        trace, rows = episode.trace, episode.emission.samples
        if rows:
            yield "response"
        if trace.turn_rewards:
            yield "turn_rewards"
        if any(len({*row.policy_versions[row.loss_mask].tolist()}) > 1 for row in rows):
            yield "policy_versions"
        if episode.emission.excluded:
            yield "excluded"
        messages = [message for node in trace.nodes for message in node.messages]
        if any(message.tool_calls for message in messages) or any(node.tools for node in trace.nodes):
            yield "tool_calls"
        if any(not isinstance(message.content, str) for message in messages):
            yield "images"
        if any(set(node.sampled.side) - TAKEN for node in trace.nodes):
            yield "side"
        if trace.divergences:
            yield "divergences"

    def add(self, episode: Episode) -> int:
        """Take one episode."""
        if episode.batch != self._batch:
            self._flush()
            self._batch = episode.batch
        of = (episode.batch, episode.trace.group, episode.trace.role)
        number = self._groups.setdefault(of, len(self._groups))
        rows = [slime_row(episode, sample, number) for sample in episode.emission.samples]
        self._rows += rows
        return len(rows)

    def close(self) -> int:
        """Write the last batch."""
        self._flush()
        return self._files

    def _flush(self) -> None:
        if self._rows:
            self._save({"rollout_id": self._files, "samples": self._rows}, self._out / f"{self._files}.pt")
            self._files += 1
            self._rows = []


def slime_row(episode: Episode, sample: Sample, group: int) -> dict[str, Any]:
    """One training row as the dict that slime's `Sample.from_dict` takes.

    `group` numbers the attempts that are compared with each other: those at a task, of one role.

    Rows of one episode share `index` and `rollout_id`, so that slime takes them as one rollout; each carries the whole
    reward, as slime's own fan-out does. Log-probs are float32 values written as Python floats, exactly.
    """
    start = prompt_length(sample)
    root = episode.trace.nodes[sample.meta["spans"][0][0]]
    trained = sample.policy_versions[sample.loss_mask].tolist()
    return {
        "group_index": group,
        "index": episode.number,
        "rollout_id": episode.number,
        "prompt": [_message(message) for message in root.messages],
        "tokens": sample.token_ids.tolist(),
        "response": "",
        "response_length": len(sample.token_ids) - start,
        "label": None,
        "reward": sample.reward,
        "loss_mask": sample.loss_mask[start:].astype(int).tolist(),
        "weight_versions": [str(version) for version in dict.fromkeys(trained)],
        "rollout_log_probs": sample.logprobs[start:].tolist(),
        "remove_sample": False,
        "status": STATUS[sample.outcome],
        "metadata": {"agar": provenance(episode, sample)},
        **_side(sample, start),
    }


def _message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.text}


def _side(sample: Sample, start: int) -> dict[str, list[Any]]:
    """The side arrays that slime takes; the kept vocabulary is ragged, with nothing for a token that is not trained."""
    found: dict[str, list[Any]] = {}
    if (teacher := sample.side.get("teacher_logprobs")) is not None:
        found["teacher_log_probs"] = teacher[start:].tolist()
    if (kept := sample.side.get("kept_vocabulary")) is not None:
        inside = (kept[start:] >= 0) & sample.loss_mask[start:, None]
        found["rollout_top_p_token_ids"] = kept[start:][inside].tolist()
        found["rollout_top_p_token_offsets"] = [0, *inside.sum(axis=1).cumsum().tolist()]
    return found
