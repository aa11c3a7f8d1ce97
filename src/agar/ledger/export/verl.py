"""Training rows as verl's `AgentLoopOutput`: one parquet file a batch, one row a training row.

The columns are the fields of `AgentLoopOutput` in verl 0.9.1, which turns them into the `DataProto` columns `prompts`,
`responses`, `response_mask`, `rollout_log_probs` and `rm_scores`. Beside them stand `uid`, by which verl groups rows,
`key`, by which it tells the rows of one episode (`{uid}_{session}_{index}`), and `agar`: JSON of everything that verl
has no field for.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agar.ledger.export.arrow import arrow
from agar.ledger.export.target import Episode, prompt_length, provenance


class VerlTarget:
    """Writes `step-000003.parquet` and so on, one file for each batch, into a folder.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """

    unread: Mapping[str, str] = {
        "weight": "rows of one episode share their key but for its end, which verl's GRPO heeds; its loss and other "
        "estimators count each row as one; the share of each is in the column agar",
        "policy_versions": "verl has the oldest and the newest version of a row; the tokens' are in the column agar",
        "excluded": "sampled tokens that are not trained are context, or in no row; the reasons are in the column agar",
        "messages": "a row has token ids only: messages, tool definitions and images are lost",
        "side": "per-token side arrays (routed experts and the like) are lost",
        "divergences": "differences between the histories sent and kept are lost",
        "outcome": "verl has no outcome; it is in the column agar",
    }

    def __init__(self, out: Path) -> None:
        self._arrow = arrow()
        self._schema = _schema(self._arrow)
        self._out = out
        self._batch: str | None = None
        self._rows: list[dict[str, Any]] = []
        self._files = 0

    def losses(self, episode: Episode) -> Iterable[str]:
        """What of the episode verl will not see."""
        trace, rows = episode.trace, episode.emission.samples
        if len(rows) > 1:
            yield "weight"
        if any(len({*row.policy_versions[row.loss_mask].tolist()}) > 2 for row in rows):
            yield "policy_versions"
        if episode.emission.excluded:
            yield "excluded"
        if rows:
            yield "messages"
            yield "outcome"
        if any(node.sampled.side for node in trace.nodes):
            yield "side"
        if trace.divergences:
            yield "divergences"

    def add(self, episode: Episode) -> int:
        """Take one episode."""
        if episode.batch != self._batch:
            self._flush()
            self._batch = episode.batch
        rows = [verl_row(episode, index) for index in range(len(episode.emission.samples))]
        self._rows += rows
        return len(rows)

    def close(self) -> int:
        """Write the last batch."""
        self._flush()
        return self._files

    def _flush(self) -> None:
        if self._rows:
            import pyarrow.parquet as parquet

            table = self._arrow.Table.from_pylist(self._rows, schema=self._schema)
            parquet.write_table(table, self._out / f"{self._batch}.parquet", compression="zstd")
            self._files += 1
            self._rows = []


def verl_row(episode: Episode, index: int) -> dict[str, Any]:
    """One training row of an episode: the fields of `AgentLoopOutput`, and `uid`, `key`, `agar`.

    `num_turns` counts messages, as verl does: those before each reply and the replies. `extra_fields` has the keys that
    verl itself fills: a reward for each reply of the row, and the oldest and newest policy version.
    """
    trace, sample = episode.trace, episode.emission.samples[index]
    start = prompt_length(sample)
    uid = f"{sample.group.task}#{sample.group.ordinal}:{sample.role}"  # roles are not compared with each other
    replies = [trace.nodes[span[0]] for span in sample.meta["spans"]]
    trained = sample.policy_versions[sample.loss_mask]
    return {
        "prompt_ids": sample.token_ids[:start].tolist(),
        "response_ids": sample.token_ids[start:].tolist(),
        "response_mask": sample.loss_mask[start:].astype(int).tolist(),
        "response_logprobs": sample.logprobs[start:].tolist(),
        "reward_score": sample.reward,
        "num_turns": sum(len(node.messages) + 1 for node in replies),
        "metrics": {"generate_sequences": 0.0, "tool_calls": 0.0, "compute_score": 0.0, "num_preempted": -1},
        "extra_fields": {
            "turn_scores": [float(trace.turn_rewards.get(node.id, 0.0)) for node in replies],
            "min_global_steps": int(trained.min()),
            "max_global_steps": int(trained.max()),
        },
        "uid": uid,
        "key": f"{uid}_{episode.number}_{index}",
        "agar": json.dumps(provenance(episode, sample)),
    }


def _schema(pa: Any) -> Any:
    ids, floats = pa.list_(pa.int64()), pa.list_(pa.float32())
    metrics = {"generate_sequences": pa.float64(), "tool_calls": pa.float64(), "compute_score": pa.float64()}
    extra = {"turn_scores": pa.list_(pa.float64()), "min_global_steps": pa.int64(), "max_global_steps": pa.int64()}
    return pa.schema(
        {
            "prompt_ids": ids,
            "response_ids": ids,
            "response_mask": ids,
            "response_logprobs": floats,
            "reward_score": pa.float64(),
            "num_turns": pa.int64(),
            "metrics": pa.struct({**metrics, "num_preempted": pa.int64()}),
            "extra_fields": pa.struct(extra),
            "uid": pa.string(),
            "key": pa.string(),
            "agar": pa.string(),
        }
    )
