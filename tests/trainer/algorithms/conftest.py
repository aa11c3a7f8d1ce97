import pytest

from agar.types import GroupId, Outcome, Sample


def build(
    trajectory, *, reward=0.0, task="t", ordinal=0, role="agent", mask=(0, 1, 1), outcome=Outcome.COMPLETED, weight=1.0
):
    mask = list(mask)
    return Sample(
        policy="p",
        group=GroupId(task=task, ordinal=ordinal),
        role=role,
        trajectory=trajectory,
        token_ids=range(1, len(mask) + 1),
        loss_mask=mask,
        source=mask,
        logprobs=[-0.5 * m for m in mask],
        policy_versions=[m - 1 for m in mask],
        rewards=[0.0] * len(mask),
        reward=reward,
        weight=weight,
        outcome=outcome,
    )


@pytest.fixture(scope="session")
def make_sample():
    return build
