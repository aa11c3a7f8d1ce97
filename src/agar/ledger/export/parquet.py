"""Everything as two parquet tables: the training rows, and the traces they came from.

Nothing is lost: `samples.parquet` gives back every `Sample` array for array, `traces.parquet` every trace byte for
byte, beside columns to search by.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agar.errors import LedgerError
from agar.ledger.codec import plain
from agar.ledger.export.arrow import arrow
from agar.ledger.export.target import Episode
from agar.ledger.trace import VERSION, Trace, token_count
from agar.types import GroupId, Outcome, Sample

SAMPLES_VERSION = 1
"""Version of the layout of `samples.parquet`; it stands in the file's metadata as `agar-samples`."""
ROWS_AT_ONCE = 256

_ARRAYS = {
    "token_ids": "int32",
    "loss_mask": "bool_",
    "source": "uint8",
    "logprobs": "float32",
    "policy_versions": "int32",
    "rewards": "float32",
}


class ParquetTarget:
    """Writes `samples.parquet` and `traces.parquet` into a folder.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """

    unread: Mapping[str, str] = {}

    def __init__(self, out: Path) -> None:
        import_ = arrow()
        self._samples = _Table(out / "samples.parquet", _samples_schema(import_))
        self._traces = _Table(out / "traces.parquet", _traces_schema(import_))

    def losses(self, episode: Episode) -> Iterable[str]:
        """Nothing."""
        return ()

    def add(self, episode: Episode) -> int:
        """Take one episode."""
        self._traces.add(_trace_row(episode))
        for sample in episode.emission.samples:
            self._samples.add({"batch": episode.batch, "episode": episode.number, **_sample_row(sample)})
        return len(episode.emission.samples)

    def close(self) -> int:
        """Finish both files."""
        self._samples.close()
        self._traces.close()
        return 2


class _Table:
    """A parquet file that is written some rows at a time."""

    def __init__(self, path: Path, schema: Any) -> None:
        import pyarrow.parquet as parquet

        self._schema = schema
        self._file = parquet.ParquetWriter(path, schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) == ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(arrow().Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


def read_samples(path: str | Path) -> Iterator[Sample]:
    """The training rows of a `samples.parquet`, as they were.

    Raises:
        LedgerError: the file is not one, or of another version.
        MissingExtraError: pyarrow is not installed.
    """
    arrow()
    import pyarrow.parquet as parquet

    file = parquet.ParquetFile(path)
    found = (file.schema_arrow.metadata or {}).get(b"agar-samples", b"none").decode()
    if found != str(SAMPLES_VERSION):
        raise LedgerError(
            f"{path} holds samples of layout {found}; this agar reads {SAMPLES_VERSION}: export the traces again"
        )
    for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield _sample(row)


def read_traces(path: str | Path) -> Iterator[Trace]:
    """The traces of a `traces.parquet`, byte for byte.

    Raises:
        LedgerError: a trace is of another version.
        MissingExtraError: pyarrow is not installed.
    """
    arrow()
    import pyarrow.parquet as parquet

    for batch in parquet.ParquetFile(path).iter_batches(batch_size=ROWS_AT_ONCE, columns=["trace"]):
        for line in batch.column("trace").to_pylist():
            yield Trace.load(line)


def _trace_row(episode: Episode) -> dict[str, Any]:
    trace = episode.trace
    trained = sum(int(sample.loss_mask.sum()) for sample in episode.emission.samples)
    return {
        "batch": episode.batch,
        "episode": episode.number,
        "trajectory": trace.trajectory,
        "group_task": trace.group.task,
        "group_ordinal": trace.group.ordinal,
        "role": trace.role,
        "policy": trace.policy,
        "env": trace.task.env,
        "outcome": trace.outcome.value,
        "reason": trace.reason,
        "reward": trace.reward.total,
        "calls": len(trace.nodes),
        "sampled_tokens": token_count(trace.nodes),
        "trained_tokens": trained,
        "excluded": [
            {"call": run.node, "start": run.start, "stop": run.stop, "reason": run.reason.value}
            for run in episode.emission.excluded
        ],
        "divergences": len(trace.divergences),
        "trace": trace.dump(),
    }


def _sample_row(sample: Sample) -> dict[str, Any]:
    return {
        "trajectory": sample.trajectory,
        "group_task": sample.group.task,
        "group_ordinal": sample.group.ordinal,
        "role": sample.role,
        "policy": sample.policy,
        "reward": sample.reward,
        "weight": sample.weight,
        "outcome": sample.outcome.value,
        **{name: getattr(sample, name) for name in _ARRAYS},
        "side": [
            {"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "data": array.tobytes()}
            for name, array in sample.side.items()
        ],
        "meta": json.dumps(plain(sample.meta)),
    }


def _sample(row: Mapping[str, Any]) -> Sample:
    side = {
        each["name"]: np.frombuffer(each["data"], dtype=np.dtype(each["dtype"])).reshape(each["shape"])
        for each in row["side"]
    }
    return Sample(
        policy=row["policy"],
        group=GroupId(task=row["group_task"], ordinal=row["group_ordinal"]),
        role=row["role"],
        trajectory=row["trajectory"],
        **{name: np.array(row[name], dtype=dtype) for name, dtype in _ARRAYS.items()},
        reward=row["reward"],
        weight=row["weight"],
        outcome=Outcome(row["outcome"]),
        side=side,
        meta=json.loads(row["meta"]),
    )


def _samples_schema(pa: Any) -> Any:
    side = pa.struct({"name": pa.string(), "dtype": pa.string(), "shape": pa.list_(pa.int64()), "data": pa.binary()})
    return pa.schema(
        {
            **_names(pa),
            "reward": pa.float64(),
            "weight": pa.float64(),
            "outcome": pa.string(),
            **{name: pa.list_(getattr(pa, dtype)()) for name, dtype in _ARRAYS.items()},
            "side": pa.list_(side),
            "meta": pa.string(),
        },
        metadata={"agar-samples": str(SAMPLES_VERSION)},
    )


def _traces_schema(pa: Any) -> Any:
    run = pa.struct({"call": pa.int64(), "start": pa.int64(), "stop": pa.int64(), "reason": pa.string()})
    return pa.schema(
        {
            **_names(pa),
            "env": pa.string(),
            "outcome": pa.string(),
            "reason": pa.string(),
            "reward": pa.float64(),
            "calls": pa.int64(),
            "sampled_tokens": pa.int64(),
            "trained_tokens": pa.int64(),
            "excluded": pa.list_(run),
            "divergences": pa.int64(),
            "trace": pa.binary(),
        },
        metadata={"agar-trace": str(VERSION)},
    )


def _names(pa: Any) -> dict[str, Any]:
    return {
        "batch": pa.string(),
        "episode": pa.int64(),
        "trajectory": pa.string(),
        "group_task": pa.string(),
        "group_ordinal": pa.int64(),
        "role": pa.string(),
        "policy": pa.string(),
    }
