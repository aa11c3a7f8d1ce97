"""The fixed sequence by which trainer and engines prove that they hold the same weights."""

import numpy as np

from agar.trainer.batching.microbatch import MicroBatch, pack_rows
from agar.trainer.batching.rows import Row
from agar.types import Ids, frozen_array


def probe_ids(vocab: int, length: int) -> Ids:
    """The probe of a vocabulary: int32 [length], the same in every run and spread over all ids."""
    return frozen_array(np.random.default_rng(0).integers(0, vocab, length), np.int32, "probe ids")


def row_to_score(token_ids: Ids) -> MicroBatch:
    """A micro-batch that scores every token of one sequence but its first."""
    inputs, targets = token_ids[:-1], token_ids[1:]
    zeros = frozen_array(np.zeros(len(inputs)), np.float32, "zeros")
    row = Row(
        sample=0,
        token_ids=frozen_array(inputs, np.int32, "token_ids"),
        targets=frozen_array(targets, np.int32, "targets"),
        loss_mask=frozen_array(np.ones(len(inputs)), np.bool_, "loss_mask"),
        weights=zeros,
        advantages=zeros,
        logprobs=zeros,
    )
    return pack_rows([row])
