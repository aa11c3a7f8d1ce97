import pytest
import torch

from agar.trainer.megatron.logprobs import vocab_parallel_logprobs


def test_logprobs_and_entropy_equal_those_of_log_softmax():
    logits = 5 * torch.randn(7, 13, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(7)
    logprobs, entropies = vocab_parallel_logprobs(logits, targets, vocab=13, temperature=0.7)
    expected = torch.log_softmax(logits / 0.7, -1)
    torch.testing.assert_close(logprobs, expected[torch.arange(7), targets])
    torch.testing.assert_close(entropies, torch.distributions.Categorical(logits=logits / 0.7).entropy())


def test_gradients_equal_autograds():
    def both(logits: torch.Tensor, ours: bool) -> torch.Tensor:
        if ours:
            logprobs, entropies = vocab_parallel_logprobs(logits, targets, vocab=9)
        else:
            log_p = torch.log_softmax(logits, -1)
            logprobs, entropies = log_p[torch.arange(5), targets], -(log_p.exp() * log_p).sum(-1)
        return (logprobs * weights[0] + entropies * weights[1]).sum()

    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(0, 9, (5,), generator=generator)
    weights = torch.randn(2, 5, generator=generator)
    values = torch.randn(5, 9, generator=generator)
    grads = []
    for ours in (True, False):
        leaf = values.clone().requires_grad_()
        both(leaf, ours).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-6)


def test_rows_that_pad_the_vocabulary_do_not_count():
    logits = torch.randn(4, 10)
    padded = torch.cat((logits, torch.full((4, 2), 50.0)), -1)
    for ours, expected in zip(
        vocab_parallel_logprobs(padded, torch.arange(4), vocab=10),
        vocab_parallel_logprobs(logits, torch.arange(4), vocab=10),
        strict=True,
    ):
        torch.testing.assert_close(ours, expected)


def test_a_certain_distribution_has_no_entropy_and_no_nan():
    logits = torch.tensor([[0.0, -1e9, -1e9], [1e4, 0.0, 0.0]], requires_grad=True)
    logprobs, entropies = vocab_parallel_logprobs(logits, torch.tensor([0, 0]), vocab=3)
    (logprobs.sum() + entropies.sum()).backward()
    assert entropies.tolist() == pytest.approx([0.0, 0.0])
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
