import numpy as np
import pytest

from agar.errors import ShapeError
from agar.trainer.batching.rows import make_rows, trained_load


def rows_of(samples, positions=None):
    positions = range(len(samples)) if positions is None else positions
    return make_rows(
        samples,
        advantages=[np.where(s.loss_mask, 10.0 + i, 0).astype(np.float32) for i, s in enumerate(samples)],
        weights={i: (trained_load(samples[i]) / 4).astype(np.float32) for i in positions},
    )


def test_everything_is_aligned_to_the_predicted_token(make_sample):
    # tokens  11 12 13 14 15, trained: 13 and 15; log-probs -0.2 and -0.4 belong to them
    sample = make_sample(tokens=[11, 12, 13, 14, 15], mask=(0, 0, 1, 0, 1))
    (row,) = rows_of([sample])
    assert row.token_ids.tolist() == [11, 12, 13, 14]
    assert row.targets.tolist() == [12, 13, 14, 15]
    assert row.loss_mask.tolist() == [False, True, False, True]
    assert row.logprobs.tolist() == pytest.approx([0, -0.2, 0, -0.4])
    assert row.advantages.tolist() == [0, 10, 0, 10]
    assert row.weights.tolist() == [0, 0.25, 0, 0.25]
    assert row.sample == 0
    assert not row.targets.flags.writeable


def test_a_trained_first_token_has_no_position(make_sample):
    (row,) = rows_of([make_sample(mask=(1, 1, 0))])
    assert row.loss_mask.tolist() == [True, False]
    assert trained_load(make_sample(mask=(1, 0, 0))).sum() == 0


def test_rows_keep_the_position_of_their_sample(make_sample):
    samples = [make_sample("a"), make_sample("b"), make_sample("c")]
    assert [row.sample for row in rows_of(samples, [2, 0])] == [2, 0]


def test_loss_weights_scale_the_load_of_the_predicted_token(make_sample):
    sample = make_sample(side={"loss_weights": np.array([9.0, 2.0, 0.0])})
    assert trained_load(sample).tolist() == [2, 0]
    (row,) = rows_of([sample])
    assert row.loss_mask.tolist() == [True, False]  # weight 0 is not trained
    with pytest.raises(ShapeError, match=r'side\["loss_weights"\] of trajectory .* shape \(3,\), got shape \(2,\)'):
        trained_load(make_sample(side={"loss_weights": np.ones(2)}))


def test_reference_logprobs_are_on_all_rows_or_on_none(make_sample):
    with_reference = make_sample(side={"reference_logprobs": [0.0, -1.0, -2.0]})
    (row,) = rows_of([with_reference])
    assert row.reference_logprobs is not None
    assert row.reference_logprobs.tolist() == [-1, -2]
    with pytest.raises(ShapeError, match=r"1 of 2 lack it \(the first is sample 1\)"):
        rows_of([with_reference, make_sample("b")])
