import pytest
import torch

from agar.trainer.megatron.norm import RmsNorm


@pytest.mark.parametrize("shape", [(7, 1, 16), (5, 1, 4, 16)])
def test_values_and_gradients_equal_torchs_own(shape):
    generator = torch.Generator().manual_seed(0)
    x, grad = torch.randn(2, *shape, generator=generator)
    weight = torch.randn(16, generator=generator)
    results = []
    for norm in (RmsNorm(None, 16, eps=1e-3), torch.nn.RMSNorm(16, eps=1e-3)):
        with torch.no_grad():
            norm.weight.copy_(weight)
        leaf = x.clone().requires_grad_()
        y = norm(leaf)
        y.backward(grad)
        results.append((y.detach(), leaf.grad, norm.weight.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_bfloat16_takes_torchs_way():
    x = torch.randn(3, 16).bfloat16()
    norm = RmsNorm(None, 16).bfloat16()
    assert torch.equal(norm(x), torch.nn.RMSNorm(16, eps=1e-6).bfloat16()(x))
