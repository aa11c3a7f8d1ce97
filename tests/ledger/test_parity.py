"""The trainer's log-probs against the engine's, on tokens of the present version only."""

import numpy as np
import pytest

from agar.errors import ShapeError
from agar.ledger.parity import ParityCheck, gap, pick
from agar.types import GroupId, Outcome, Sample, Source


def row(trajectory="t0", *, versions=(-1, -1, 3, 3, 4), policy="main"):
    versions = np.array(versions, np.int32)
    trained = versions >= 0
    return Sample(
        policy=policy, group=GroupId(task="k", ordinal=0), role="agent", trajectory=trajectory,
        token_ids=np.arange(len(versions)), loss_mask=trained,
        source=np.where(trained, Source.SAMPLED, Source.CONTEXT).astype(np.uint8),
        logprobs=np.where(trained, -1.0, 0.0), policy_versions=versions, rewards=np.zeros(len(versions)), reward=0.0,
        weight=1.0, outcome=Outcome.COMPLETED,
    )  # fmt: skip


def test_only_tokens_of_the_present_version_are_compared():
    found = np.array([-9.0, -1.25, -1.5, -7.0], np.float32)  # of tokens 1 to 4
    assert gap(row(), found, 3).tolist() == [0.25, 0.5]
    assert gap(row(), found, 4).tolist() == [6.0]
    assert gap(row(), found, 5).tolist() == []
    with pytest.raises(ShapeError, match="expected one fewer"):
        gap(row(), found[1:], 3)


def test_rows_without_such_tokens_are_not_picked_and_others_come_up_in_turn():
    rows = [row(f"t{index}", versions=(-1, index % 2)) for index in range(40)]
    first = pick(rows, 5, {"main": 1})
    assert len(first) == 5
    assert {int(sample.policy_versions[1]) for sample in first} == {1}
    assert [s.trajectory for s in pick(rows[::-1], 5, {"main": 1})] == [s.trajectory for s in first]
    assert pick(rows, 5, {"main": 2}) == pick(rows, 5, {"other": 1}) == []
    again = pick([row(f"u{index}", versions=(-1, 1)) for index in range(40)], 5, {"main": 1})
    assert [s.trajectory[1:] for s in again] != [s.trajectory[1:] for s in first]


@pytest.mark.parametrize(("tolerance", "bad"), [(0.3, True), (0.4, False), (None, False)])
async def test_the_mean_difference_is_held_against_the_tolerance(tolerance, bad):
    asked = []

    async def rescore(policy, ids):
        asked.append((policy, len(ids)))
        return np.array([0.0, -1.25, -1.5, 0.0], np.float32)

    check = ParityCheck(rescore=rescore, rows=2, tolerance_nats=tolerance)
    parity = await check.run([row("a"), row("b", policy="other", versions=(-1, -1, 3, 2, 2))], {"main": 3, "other": 3})
    assert sorted(asked) == [("main", 5), ("other", 5)]
    assert parity is not None
    assert (parity.rows, parity.tokens, parity.max_nats) == (2, 3, 0.5)
    assert parity.mean_nats == pytest.approx(1 / 3)
    assert parity.metrics()["ledger/parity_max_nats"] == 0.5
    problem = check.problem(parity)
    assert (problem is not None) == bad
    assert problem is None or "by 0.3333 nats on average (largest 0.5), more than 0.3" in problem


async def test_nothing_to_compare_is_no_finding():
    async def rescore(policy, ids):
        raise AssertionError("nothing to score")

    check = ParityCheck(rescore=rescore, rows=2, tolerance_nats=0.0)
    assert await check.run([row()], {"main": 9}) is None
    assert check.problem(None) is None
