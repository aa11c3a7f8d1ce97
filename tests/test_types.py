import numpy as np
import pytest

from agar.errors import ConfigError, EngineError, ShapeError
from agar.types import Finish, Sampled, Turn


def reply(rows, **meta):
    meta = {"weight_version": "3", "finish_reason": {"type": "stop"}, **meta}
    return {"meta_info": {"output_token_logprobs": rows, **meta}}


def test_a_turn_is_a_turn_or_a_text():
    turn = Turn(text="yes")
    assert (Turn.of("yes"), Turn.of(turn)) == (turn, turn)
    with pytest.raises(ConfigError, match="expected a Turn or a text, got int: 5"):
        Turn.of(5)


def test_engine_reply_becomes_arrays_with_a_version_per_token():
    sampled = Sampled.from_generate(reply([[-0.5, 7, None], [1e-6, 9, "text"]]))
    assert sampled.token_ids.tolist() == [7, 9]
    assert sampled.logprobs.tolist() == [-0.5, 0.0]  # rounding may lift a log-prob above zero
    assert sampled.policy_versions.tolist() == [3, 3]
    assert sampled.finish is Finish.STOP
    assert not any(a.flags.writeable for a in (sampled.token_ids, sampled.logprobs, sampled.policy_versions))


def test_reply_without_tokens_is_empty():
    sampled = Sampled.from_generate(reply([], finish_reason=None), policy_version=5)
    assert len(sampled) == 0
    assert sampled.finish is Finish.ABORT


@pytest.mark.parametrize(
    "row", [[None, 7], [-0.5, None], [-0.5, 2**40], ["x", 7], [-0.5], None], ids=lambda row: str(row)
)
def test_unreadable_row_is_an_engine_error(row):
    with pytest.raises(EngineError, match="lacks token ids"):
        Sampled.from_generate(reply([[-0.1, 1, None], row]))


@pytest.mark.parametrize("version", ["default", 2**40, None])
def test_unreadable_version_is_an_engine_error(version):
    with pytest.raises(EngineError, match="weight_version"):
        Sampled.from_generate(reply([[-0.1, 1, None]], weight_version=version))


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_logprob_that_is_not_finite_is_refused(value):
    with pytest.raises(ShapeError, match="not finite"):
        Sampled.from_generate(reply([[-0.1, 1, None], [value, 2, None]]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.5])
def test_restored_logprob_must_be_finite_and_at_most_zero(value):
    with pytest.raises(ShapeError):
        Sampled.restore(token_ids=[1, 2], logprobs=[-1.0, value], policy_versions=[0, 0], finish=Finish.STOP)


def test_ids_logprobs_and_versions_have_one_length():
    with pytest.raises(ShapeError, match="must be equal"):
        Sampled.restore(token_ids=[1, 2], logprobs=[-1.0], policy_versions=[0, 0], finish=Finish.STOP)


def test_sampled_is_not_built_by_hand():
    with pytest.raises(EngineError, match="from_generate"):
        Sampled(object(), token_ids=[1], logprobs=[-1.0], policy_versions=[0], finish=Finish.STOP)


def test_the_pieces_of_an_interrupted_reply_keep_the_arrays_that_all_of_them_have():
    def piece(token, **side):
        return Sampled.restore(
            token_ids=[token], logprobs=[-1.0], policy_versions=[token], finish=Finish.ABORT, side=side
        )

    experts = np.zeros((1, 2, 2), np.int16)
    whole = Sampled.join([piece(1, routed_experts=experts, odd=experts), piece(2, routed_experts=experts + 1)])
    assert whole.token_ids.tolist() == [1, 2]
    assert list(whole.side) == ["routed_experts"]
    assert whole.side["routed_experts"].tolist() == np.concatenate([experts, experts + 1]).tolist()
