import numpy as np
import pytest

from agar.ledger.layouts import LAYOUTS


def array(values, dtype):
    return np.array(values, dtype=dtype)


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("routed_experts", np.zeros((4, 2, 8), np.int16)),
        ("routed_experts", np.full((4, 1, 1), -1, np.int32)),
        ("kept_vocabulary", np.full((4, 3), -1, np.int32)),
        ("reference_logprobs", np.full(4, -0.5, np.float32)),
        ("teacher_logprobs", np.zeros(4, np.float32)),
        ("loss_weights", np.full(4, 2.0, np.float32)),
        ("images", array([[0, 1], [1, 3]], np.int32)),
        ("images", np.zeros((0, 2), np.int32)),
    ],
)
def test_declared_forms_pass(name, good):
    assert LAYOUTS[name].problem(good, 4) is None


@pytest.mark.parametrize(
    ("name", "bad", "why"),
    [
        ("routed_experts", np.zeros((3, 2, 8), np.int16), r"shape \[3, 2, 8\], expected \[4, ·, ·\]"),  # a row short
        ("routed_experts", np.zeros((4, 16), np.int16), "shape"),
        ("routed_experts", np.zeros((4, 2, 8), np.float32), "dtype float32, expected int16 or int32"),
        ("routed_experts", np.full((4, 2, 8), -2, np.int16), "values from -2"),
        ("reference_logprobs", np.full(4, 0.5, np.float32), r"0\.5, expected -inf to 0"),
        ("reference_logprobs", np.full(4, np.nan, np.float32), "not finite"),
        ("loss_weights", np.full(4, -1.0, np.float32), "values from -1"),
        ("images", array([[0, 5]], np.int32), "pass the 4 tokens"),
        ("images", array([[0, 2], [1, 1]], np.int32), "overlap"),
        ("images", array([[0, 0]], np.int32), "empty"),
        ("images", array([[0, 1, 1]], np.int32), r"\[runs, 2\]"),
    ],
)
def test_other_forms_are_named(name, bad, why):
    found = LAYOUTS[name].problem(bad, 4)
    assert found is not None
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(found)


def test_what_stands_where_nothing_is_known_is_itself_allowed():
    for layout in LAYOUTS.values():
        if layout.per_token:
            filled = np.full((4, *(2,) * (layout.ndim - 1)), layout.fill, dtype=layout.dtypes[0])
            assert layout.problem(filled, 4) is None
