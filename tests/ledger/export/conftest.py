"""An episode with everything that an export has to place, and its layout worked out by hand."""

import numpy as np
import pytest

from agar.ledger.emission import emission
from agar.ledger.export.target import Episode
from agar.ledger.families.base import Family
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, TaskRow, ToolSpec

ASK = Message(role="user", content="How much gold?")
SYSTEM = Message(role="system", content="You hunt.")
SHELL = ToolSpec(name="sh", description="Runs a command.")
CALL = '<tool_call>\n{"name": "sh", "arguments": {"command": "cat 1"}}\n</tool_call>'


def played(family: Family) -> Trace:
    """Calls 0 → 1 with a tool in between; 2 is a retry of 1; 3 a sub-agent.

    The reply of call 0 was interrupted by a publish: its first two tokens are of version 3, the others of version 4.
    """
    forest = Forest(family)

    def call(history, says, tools=()):
        plan = forest.plan(history, tools)
        ids = family.tokenizer.encode(f"{says}<|im_end|>", special=True)
        sampled = Sampled.restore(
            token_ids=ids,
            logprobs=hash_logprobs(plan.prompt, ids),
            policy_versions=np.where(np.arange(len(ids)) < 2, 3, 4) if not forest.nodes else np.full(len(ids), 4),
            finish=Finish.STOP,
        )
        return forest.commit(plan, sampled, family.parse(ids), sampling=Sampling()).turn.message()

    first = call([SYSTEM, ASK], CALL, (SHELL,))
    assert first.tool_calls
    result = Message(role="tool", content="29", tool_call_id=first.tool_calls[0].id)
    call([SYSTEM, ASK, first, result], "box 1", (SHELL,))
    call([SYSTEM, ASK, first, result], "29", (SHELL,))
    call([Message(role="user", content="Sum up.")], "gold")
    return Trace(
        trajectory="k#5/0", group=GroupId(task="k", ordinal=5), role="agent", policy="main",
        task=TaskRow(key="k", prompt="How much gold?", payload={"answer": 29}, env="Hunt-v0"),
        nodes=tuple(forest.nodes), divergences=tuple(forest.differences), turn_rewards={0: 0.25, 2: 0.75},
        reward=Reward(total=1.0, parts={"found": 1.0}), outcome=Outcome.COMPLETED,
    )  # fmt: skip


@pytest.fixture
def trace(family):
    return played(family)


@pytest.fixture
def episode(trace):
    """As the eighth of an export, in the batch of step 3; it gives two rows: 0 → 2, and 3."""
    told = Episode(batch="step-000003", number=7, trace=trace, emission=emission(trace))
    assert [[span[0] for span in row.meta["spans"]] for row in told.emission.samples] == [[0, 2], [3]]
    return told
