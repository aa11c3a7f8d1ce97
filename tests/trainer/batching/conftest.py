import numpy as np
import pytest
from hypothesis import strategies as st

from agar.types import GroupId, Outcome, Sample, Source

VOCABULARY = 7


@st.composite
def batches(draw, *, source=Source.SAMPLED, reference=None):
    """Batches of one policy: groups, several samples per trajectory, failures, short and untrained samples."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    with_reference = draw(st.booleans()) if reference is None else reference
    samples = []
    for number in range(draw(st.integers(1, 6))):
        group = GroupId(task=draw(st.sampled_from("xy")), ordinal=0)
        outcome = draw(st.sampled_from([Outcome.COMPLETED, Outcome.COMPLETED, Outcome.TRUNCATED, Outcome.INFRA_ERROR]))
        reward = draw(st.sampled_from([0.0, 0.5, 1.0]))
        pieces = draw(st.integers(1, 2))
        for _ in range(pieces):
            length = draw(st.integers(1, 9))
            mask = rng.random(length) < draw(st.sampled_from([0.0, 0.5, 1.0]))
            reference_logprobs = {"reference_logprobs": -rng.random(length).astype(np.float32)}
            samples.append(
                Sample(
                    policy="p",
                    group=group,
                    role="agent",
                    trajectory=str(number),
                    token_ids=rng.integers(0, VOCABULARY, length),
                    loss_mask=mask,
                    source=np.where(mask, source, Source.CONTEXT),
                    logprobs=np.where(mask, -2 * rng.random(length), 0),
                    policy_versions=np.where(mask, 0, -1),
                    rewards=np.zeros(length),
                    reward=reward,
                    weight=1 / pieces,
                    outcome=outcome,
                    side=reference_logprobs if with_reference else {},
                )
            )
    return samples


@pytest.fixture(scope="session")
def make_batches():
    return batches


@pytest.fixture(scope="session")
def make_sample():
    def build(trajectory="a", *, mask=(0, 1, 1), tokens=None, reward=0.0, outcome=Outcome.COMPLETED, **changes):
        mask = np.array(mask, dtype=bool)
        length = len(mask)
        sample = Sample(
            policy="p",
            group=GroupId(task="t", ordinal=0),
            role="agent",
            trajectory=trajectory,
            token_ids=range(1, length + 1) if tokens is None else tokens,
            loss_mask=mask,
            source=mask,
            logprobs=[-0.1 * i if on else 0.0 for i, on in enumerate(mask)],
            policy_versions=np.where(mask, 0, -1),
            rewards=np.zeros(length),
            reward=reward,
            weight=1.0,
            outcome=outcome,
        )
        return sample.but(**changes)

    return build
