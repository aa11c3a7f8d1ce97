import pytest
import torch

pytestmark = pytest.mark.megatron


def test_groups_cover_every_token_once_and_waste_little(one_rank):
    from agar.trainer.megatron.attention import group_rows

    lengths = torch.tensor([3, 200, 1, 190, 50, 4, 2, 60])
    cu_seqlens = torch.cat((torch.zeros(1, dtype=torch.long), lengths.cumsum(0)))
    groups = group_rows(cu_seqlens)
    covered = torch.cat([group.tokens for group in groups])
    assert covered.sort().values.tolist() == list(range(int(lengths.sum())))
    assert sum(group.gather.numel() for group in groups) <= 1.5 * int(lengths.sum())


def test_packed_rows_attend_as_if_each_were_alone(one_rank):
    import types

    from agar.trainer.megatron.attention import SdpaAttention, group_rows

    attention = SdpaAttention(types.SimpleNamespace(), 1)
    generator = torch.Generator().manual_seed(0)
    cu_seqlens = torch.tensor([0, 5, 6, 30, 33])
    query = torch.randn(33, 4, 8, generator=generator)
    key, value = torch.randn(2, 33, 2, 8, generator=generator)
    packed = attention(query, key, value, None, packed_seq_params=types.SimpleNamespace(groups=group_rows(cu_seqlens)))
    for start, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
        expected = []
        for head in range(4):
            scores = query[start:end, head] @ key[start:end, head // 2].T / 8**0.5
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
            expected.append(scores.softmax(-1) @ value[start:end, head // 2])
        torch.testing.assert_close(packed[start:end], torch.cat(expected, -1), rtol=1e-4, atol=1e-5)
