"""Log-probs and entropy of a vocabulary that is split over tensor parallel ranks.

Legend: K positions, V vocabulary rows of this rank.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class _VocabParallel(torch.autograd.Function):
    """Log-prob of the target and entropy of the distribution, in one pass over the logits.

    With p the softmax of z: d logp_t / d z_v = [v = t] - p_v, and d H / d z_v = -p_v (log p_v + H).
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, first: int, group: Any) -> Any:
        peak = logits.amax(-1, keepdim=True)
        _reduce(peak, dist.ReduceOp.MAX, group)
        shifted = logits - peak
        exps = shifted.exp()
        local = targets - first
        mine = (local >= 0) & (local < logits.shape[-1])
        local = local.clamp(0, logits.shape[-1] - 1)
        # One collective for the three sums: normaliser, expectation of the shifted logit, logit of the target.
        sums = torch.stack(
            (
                exps.sum(-1),
                torch.linalg.vecdot(exps, shifted),
                shifted.gather(-1, local[:, None]).squeeze(-1) * mine,
            )
        )
        _reduce(sums, dist.ReduceOp.SUM, group)
        total, weighted, chosen = sums
        log_total = total.log()
        entropy = log_total - weighted / total
        ctx.save_for_backward(exps.div_(total[:, None]), entropy, local, mine)
        ctx.set_materialize_grads(False)
        return chosen - log_total, entropy

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor, None, None, None]:
        p, entropy, local, mine = ctx.saved_tensors
        grad_logprob, grad_entropy = grads
        grad = torch.zeros_like(p) if grad_logprob is None else p * -grad_logprob[:, None]
        if grad_logprob is not None:
            grad.scatter_add_(-1, local[:, None], (grad_logprob * mine)[:, None])
        if grad_entropy is not None:
            # A probability that is 0 contributes nothing, whatever stands for its logarithm.
            log_p = p.clamp_min(torch.finfo(p.dtype).tiny).log_()
            grad.sub_(p * (log_p.add_(entropy[:, None])) * grad_entropy[:, None])
        return grad, None, None, None


def _reduce(values: torch.Tensor, op: Any, group: Any) -> None:
    if group is not None and group.size() > 1:
        dist.all_reduce(values, op=op, group=group)


def vocab_parallel_logprobs(
    logits: torch.Tensor, targets: torch.Tensor, *, vocab: int, temperature: float = 1.0, group: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of targets, and entropies, from vocabulary-split logits.

    Args:
        logits: [K, V], this rank's slice; rank r of the group holds rows r * V onward.
        targets: int64 [K], global token ids.
        vocab: size of the real vocabulary; padding rows beyond it are left out.
        temperature: divides the logits first.
        group: the tensor parallel process group, or None where the vocabulary is whole.

    Returns:
        float32 [K] log-probs in nats and float32 [K] entropies in nats, both differentiable and equal on all ranks.

    Source: softmax cross-entropy split over ranks, arXiv:1909.08053 §3; the entropy's derivative is worked out above.
    """
    first = 0 if group is None else group.rank() * logits.shape[-1]
    real = min(logits.shape[-1], vocab - first)
    scaled = logits[:, :real].float()
    if temperature != 1.0:
        scaled = scaled / temperature
    apply: Callable[..., tuple[torch.Tensor, torch.Tensor]] = _VocabParallel.apply
    return apply(scaled, targets, first, group)
