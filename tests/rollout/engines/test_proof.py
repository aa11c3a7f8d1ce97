import dataclasses

import pytest

from agar.errors import PublishError
from agar.rollout.engines.proof import Delivered, Proof, fault_of, judge


def proof(**changes):
    return Proof(**{"checksum": "new", "gap": 0.0, "version": 2, **changes})


@pytest.fixture
def second(update):
    return update("b", 2)


@pytest.fixture
def first(update):
    return Delivered(update=update("a", 1), checksum="old")


def test_sound_proof_has_no_fault(second, first):
    assert fault_of(proof(), second, first) is None
    assert fault_of(proof(), second, None) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 1}, "stamps version 1, expected 2"),
        ({"checksum": "old"}, "kept the old weights"),
        ({"gap": 0.01}, "0.01 nats off"),
        ({"gap": float("nan")}, "nan nats off"),
    ],
)
def test_each_broken_proof_is_named(second, first, changes, message):
    assert message in fault_of(proof(**changes), second, first)


def test_equal_digest_demands_an_equal_checksum(first):
    again = dataclasses.replace(first.update, version=2)
    assert fault_of(proof(checksum="old"), again, first) is None
    assert "changed although the digest did not" in fault_of(proof(checksum="new"), again, first)


def test_engines_outside_the_majority_missed_the_update(second, first):
    proofs = {"x": proof(), "y": proof(), "z": proof(checksum="odd"), "w": proof(gap=1.0)}
    checksum, missed = judge(proofs, second, first, {})
    assert checksum == "new"
    assert set(missed) == {"z", "w"}
    assert "majority" in missed["z"]


def test_split_without_majority_proves_nothing(second, first):
    with pytest.raises(PublishError, match="disagree"):
        judge({"x": proof(checksum="1"), "y": proof(checksum="2")}, second, first, {})


def test_no_proof_at_all_names_every_reason(second, first):
    with pytest.raises(PublishError, match=r"x: stamps version 9.*y: dead"):
        judge({"x": proof(version=9)}, second, first, {"y": "dead"})
    with pytest.raises(PublishError, match="there is no engine"):
        judge({}, second, first, {})
