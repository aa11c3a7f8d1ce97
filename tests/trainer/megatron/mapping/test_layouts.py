import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agar.trainer.megatron.mapping.layouts import (
    GatedRows,
    GroupedQkv,
    Layout,
    Replicated,
    Sliced,
    Tensors,
    VocabRows,
)
from agar.trainer.megatron.model_config import ModelConfig


def model(*, heads: int = 4, kv_heads: int = 2, head_dim: int = 3, hidden: int = 8, vocab: int = 11) -> ModelConfig:
    return ModelConfig(
        model_type="qwen3",
        layers=2,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=12,
        vocab=vocab,
        max_positions=64,
        rope_theta=1e4,
        norm_eps=1e-6,
        tied=False,
    )


def count(*shape: int) -> torch.Tensor:
    """A tensor whose entries are all different."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)


@given(
    kv_heads=st.integers(1, 4).map(lambda n: 2 * n),
    repeats=st.integers(1, 4),
    head_dim=st.integers(1, 5),
    size=st.sampled_from([1, 2]),
    vocab=st.integers(2, 40),
)
def test_hugging_face_tensors_survive_the_way_to_the_ranks_and_back(kv_heads, repeats, head_dim, size, vocab):
    shape = model(heads=kv_heads * repeats, kv_heads=kv_heads, head_dim=head_dim, vocab=vocab)
    kv = count(kv_heads * head_dim, 8)
    cases: list[tuple[Layout, Tensors]] = [
        (Replicated(), (count(8),)),
        (Sliced(1), (count(6, 8),)),
        (VocabRows(), (count(vocab, 8),)),
        (GroupedQkv(), (count(kv_heads * repeats * head_dim, 8) + 1e4, kv, -kv)),
        (GatedRows(), (count(12, 8), -count(12, 8))),
    ]
    for layout, parts in cases:
        whole = layout.merge(parts, shape)
        shards = [layout.shard(whole, rank, size) for rank in range(size)]
        assert len({shard.shape for shard in shards}) == 1
        back = layout.split(layout.unshard(shards), shape)
        assert all(torch.equal(a, b) for a, b in zip(back, parts, strict=True)), type(layout).__name__


def test_queries_of_a_group_stand_beside_their_key_and_value():
    q, k, v = count(12, 1), 100 + count(6, 1), 200 + count(6, 1)
    rows = GroupedQkv().merge((q, k, v), model()).squeeze(1).tolist()
    assert rows[:12] == [0, 1, 2, 3, 4, 5, 100, 101, 102, 200, 201, 202]


def test_biases_of_a_group_stand_where_its_rows_do_on_every_rank():
    shape = model()
    q, k, v = count(12, 1), 100 + count(6, 1), 200 + count(6, 1)
    layout = GroupedQkv()
    rows, biases = layout.merge((q, k, v), shape), layout.merge((q[:, 0], k[:, 0], v[:, 0]), shape)
    for rank in range(2):
        assert torch.equal(layout.shard(rows, rank, 2)[:, 0], layout.shard(biases, rank, 2))
    back = layout.split(layout.unshard([layout.shard(biases, rank, 2) for rank in range(2)]), shape)
    assert all(torch.equal(ours, theirs[:, 0]) for ours, theirs in zip(back, (q, k, v), strict=True))


def test_every_rank_holds_a_slice_of_the_gate_and_of_the_other_half():
    gate, up = count(4, 1), 100 + count(4, 1)
    layout = GatedRows()
    assert layout.shard(layout.merge((gate, up), model()), 1, 2).squeeze(1).tolist() == [2, 3, 102, 103]


@pytest.mark.parametrize("size", [2, 4])
def test_a_vocabulary_that_does_not_divide_is_padded_with_zeros(size):
    shards = [VocabRows().shard(count(11, 2) + 1, rank, size) for rank in range(size)]
    assert [len(shard) for shard in shards] == [12 // size] * size
    assert not shards[-1][-1].any()
