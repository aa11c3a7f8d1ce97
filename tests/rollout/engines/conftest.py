"""Weights on disk, and updates that carry them with the proof that a trainer would send."""

import json

import numpy as np
import pytest

from agar.rollout.engines.hashlm import HashLM, weights_digest
from agar.types import Probe, WeightUpdate

PROBE_IDS = np.array([5, 6, 7, 8, 9], dtype=np.int32)


@pytest.fixture
def weights(tmp_path):
    """weights("a") is a directory; equal names hold equal weights."""

    def make(name, copy=0):
        directory = tmp_path / f"{name}-{copy}"
        directory.mkdir(exist_ok=True)
        (directory / "model.safetensors").write_bytes(name.encode())
        (directory / "config.json").write_text(json.dumps({"vocab_size": 512}))
        return directory

    return make


@pytest.fixture
def update(weights):
    """update("a", 3) is version 3 with weights a, as a trainer publishes it to fake engines."""

    def make(name, version, *, copy=0, digest=None, lie_nats=0.0):
        directory = weights(name, copy)
        model = HashLM(weights=weights_digest(directory))
        return WeightUpdate(
            policy="main",
            version=version,
            transport="disk",
            payload={"directory": str(directory)},
            digest=digest or name,
            probe=Probe(token_ids=PROBE_IDS, logprobs=model.sequence_logprobs(PROBE_IDS) + np.float32(lie_nats)),
        )

    return make
