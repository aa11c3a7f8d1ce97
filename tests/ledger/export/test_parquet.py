"""The parquet export gives back every sample array for array and every trace byte for byte."""

from dataclasses import replace

import numpy as np
import pytest

from agar.errors import LedgerError
from agar.ledger.emission import Emission
from agar.ledger.export.parquet import ParquetTarget, read_samples, read_traces

pytest.importorskip("pyarrow")

ARRAYS = ("token_ids", "loss_mask", "source", "logprobs", "policy_versions", "rewards")


@pytest.fixture
def out(episode, tmp_path):
    side = {"routed_experts": np.arange(12, dtype=np.int16).reshape(2, 3, 2)}
    first, second = episode.emission.samples
    with_side = Emission(samples=(replace(first, side=side), second), excluded=episode.emission.excluded)
    target = ParquetTarget(tmp_path)
    assert target.add(replace(episode, emission=with_side)) == 2
    assert list(target.losses(episode)) == []
    assert target.close() == 2
    return tmp_path


def test_samples_come_back_array_for_array(out, episode):
    read = list(read_samples(out / "samples.parquet"))
    for sample, before in zip(read, episode.emission.samples, strict=True):
        for name in ARRAYS:
            array, expected = getattr(sample, name), getattr(before, name)
            assert array.dtype == expected.dtype
            assert array.tobytes() == expected.tobytes(), name
        for name in ("policy", "group", "role", "trajectory", "reward", "weight", "outcome", "meta"):
            assert getattr(sample, name) == getattr(before, name), name
    side = read[0].side["routed_experts"]
    assert (side.dtype, side.shape, side.ravel().tolist()) == (np.int16, (2, 3, 2), list(range(12)))


def test_traces_come_back_byte_for_byte(out, trace):
    assert [read.dump() for read in read_traces(out / "traces.parquet")] == [trace.dump()]


def test_other_tools_read_the_columns(out, trace):
    import pyarrow.parquet as parquet

    row = parquet.read_table(out / "traces.parquet").to_pylist()[0]
    assert (row["batch"], row["env"], row["outcome"], row["reward"], row["calls"]) == (
        "step-000003", "Hunt-v0", "completed", 1.0, 4,
    )  # fmt: skip
    n = len(trace.nodes[1].sampled)
    assert row["excluded"] == [{"call": 1, "start": 0, "stop": n, "reason": "abandoned_retry"}]
    assert row["trained_tokens"] == row["sampled_tokens"] - n
    samples = parquet.read_table(out / "samples.parquet")
    assert samples.column("trajectory").to_pylist() == ["k#5/0", "k#5/0"]
    assert str(samples.schema.field("logprobs").type) == "list<element: float>"


def test_many_rows_are_written_some_at_a_time(episode, tmp_path, monkeypatch):
    monkeypatch.setattr("agar.ledger.export.parquet.ROWS_AT_ONCE", 3)
    target = ParquetTarget(tmp_path)
    for number in range(5):
        target.add(replace(episode, number=number))
    target.close()
    assert len(list(read_samples(tmp_path / "samples.parquet"))) == 10


def test_another_layout_is_refused(out):
    import pyarrow.parquet as parquet

    table = parquet.read_table(out / "samples.parquet")
    parquet.write_table(table.replace_schema_metadata({"agar-samples": "9"}), out / "newer.parquet")
    with pytest.raises(LedgerError, match="layout 9; this agar reads 1"):
        list(read_samples(out / "newer.parquet"))
    with pytest.raises(LedgerError, match="layout none"):
        list(read_samples(out / "traces.parquet"))
