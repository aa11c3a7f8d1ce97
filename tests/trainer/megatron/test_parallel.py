"""Process groups of one rank."""

from datetime import timedelta

import pytest
import torch

pytestmark = [pytest.mark.megatron, pytest.mark.usefixtures("one_rank")]


@pytest.mark.parametrize("group", ["tensor_model_parallel", "pipeline_model_parallel", "data_parallel"])
def test_a_collective_of_every_group_has_the_deadline_that_is_set(group):
    from megatron.core import parallel_state

    found = getattr(parallel_state, f"get_{group}_group")()
    assert found._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=30)  # as `one_rank` joins
