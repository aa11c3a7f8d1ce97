"""Rotary scaling of Llama 3 against Hugging Face transformers, over rows that are long enough to tell."""

import json

import numpy as np
import pytest
import torch

from agar.trainer.config import TrainerConfig
from agar.trainer.publish.probe import probe_ids, row_to_score

pytestmark = [pytest.mark.megatron, pytest.mark.usefixtures("one_rank")]

LENGTH = 3000


def write_scaled(model, directory, rope):
    """The same weights under other rotary settings."""
    directory.mkdir()
    for name in ("model.safetensors", "config.json"):
        (directory / name).write_bytes((model / name).read_bytes())
    config = json.loads((directory / "config.json").read_text())
    changes = {"rope_parameters": {"rope_theta": 5e5, **rope}, "max_position_embeddings": 131072}
    (directory / "config.json").write_text(json.dumps(config | changes))
    return directory


def logprobs(model):
    from agar.trainer.megatron.rank import Rank

    return Rank(TrainerConfig(model=model)).logprobs([row_to_score(probe_ids(97, LENGTH))])[0]


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_logprobs_under_llama_3s_scaling_equal_those_of_transformers(models_by_type, tmp_path, factor):
    import transformers

    model = models_by_type["llama"][False]
    scaling = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    scaled = write_scaled(model, tmp_path / "scaled", {"rope_type": "llama3", "factor": factor, **scaling})
    plain = write_scaled(model, tmp_path / "plain", {"rope_type": "default"})
    ids = torch.tensor(probe_ids(97, LENGTH).astype(np.int64))
    with torch.no_grad():
        logits = transformers.AutoModelForCausalLM.from_pretrained(scaled, dtype=torch.float32)(ids[None, :-1]).logits
    theirs = torch.log_softmax(logits[0], -1).gather(1, ids[1:, None])[:, 0].numpy()
    ours = logprobs(scaled)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.abs(ours - logprobs(plain)).max() > 1e-2  # far above what is allowed, so the scaling is there
