import pickle

import numpy as np
import pytest

from agar.errors import ShapeError
from agar.trainer.batching.microbatch import filler, pack_rows, padded_length
from agar.trainer.batching.rows import make_rows


def rows(make_sample):
    samples = [make_sample("a", tokens=[1, 2, 3, 4], mask=(0, 1, 1, 1))]
    samples.append(make_sample("b", tokens=[5, 6, 7], mask=(0, 0, 1)))
    return make_rows(
        samples,
        advantages=[np.ones(4, np.float32), -np.ones(3, np.float32)],
        weights={0: np.full(3, 0.5, np.float32), 1: np.full(2, 0.25, np.float32)},
    )


def test_rows_are_laid_one_after_another(make_sample):
    packed = pack_rows(rows(make_sample))
    assert packed.rows == (0, 1)
    assert packed.token_ids.tolist() == [1, 2, 3, 5, 6]
    assert packed.targets.tolist() == [2, 3, 4, 6, 7]
    assert packed.position_ids.tolist() == [0, 1, 2, 0, 1]
    assert packed.segment_ids.tolist() == [0, 0, 0, 1, 1]
    assert packed.cu_seqlens.tolist() == [0, 3, 5]
    assert packed.segment_tokens.tolist() == [3, 1]
    assert packed.loss_mask.tolist() == [True, True, True, False, True]
    assert packed.weights.tolist() == [0.5, 0.5, 0.5, 0, 0.25]
    assert packed.advantages.tolist() == [1, 1, 1, 0, -1]
    assert packed.max_seqlen == 3
    assert packed.trained_tokens == 4
    assert packed.reference_logprobs is None


def test_segments_are_padded_at_their_end(make_sample):
    packed = pack_rows(rows(make_sample), row_multiple=4)
    assert packed.token_ids.tolist() == [1, 2, 3, 0, 5, 6, 0, 0]
    assert packed.position_ids.tolist() == [0, 1, 2, 3] * 2
    assert packed.cu_seqlens.tolist() == [0, 4, 8]
    assert packed.segment_tokens.tolist() == [3, 1]
    assert not packed.loss_mask[[3, 6, 7]].any()
    assert padded_length(8, 4) == 8


def test_a_filler_trains_nothing_and_has_a_whole_segment():
    empty = filler(row_multiple=4, with_reference=True)
    assert (empty.rows, len(empty), empty.trained_tokens, empty.max_seqlen) == ((-1,), 4, 0, 4)
    assert empty.reference_logprobs is not None
    assert empty.weights.sum() == 0


def test_fields_can_be_replaced_and_are_checked(make_sample):
    packed = pack_rows(rows(make_sample))
    old = np.zeros(5, np.float32)
    assert packed.but(old_logprobs=old).old_logprobs is old
    with pytest.raises(ShapeError, match=r"old_logprobs has shape \(4,\), expected \(5,\)"):
        packed.but(old_logprobs=np.zeros(4, np.float32))
    with pytest.raises(ShapeError, match="2 rows needs 3 cu_seqlens"):
        packed.but(cu_seqlens=np.array([0, 5], np.int32))
    with pytest.raises(ShapeError, match="ends at 4, expected 5"):
        packed.but(cu_seqlens=np.array([0, 3, 4], np.int32))


def test_a_microbatch_without_rows_is_refused():
    with pytest.raises(ShapeError, match="rows of at least one position"):
        pack_rows([])


def test_it_survives_pickling(make_sample):
    packed = pack_rows(rows(make_sample))
    copy = pickle.loads(pickle.dumps(packed))
    assert copy.rows == packed.rows
    assert (copy.weights == packed.weights).all()
