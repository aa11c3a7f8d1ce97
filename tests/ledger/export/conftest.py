"""An episode with everything that an export has to place, and its layout worked out by hand."""

import numpy as np
import pytest
from hypothesis import strategies as st

from agar.ledger.emission import emission
from agar.ledger.export.target import Episode
from agar.ledger.families.base import Family
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sample, Sampled, Sampling, TaskRow, ToolSpec

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


CALLS = st.lists(
    st.tuples(
        st.integers(0, 9), st.sampled_from(["Go on.", "29", "Sum up."]), st.sampled_from(["box 1", "ok", CALL]),
        st.booleans(), st.integers(0, 2),
    ),
    min_size=1, max_size=7,
)  # fmt: skip
"""What `grown` takes."""


def grown(family: Family, calls: list[tuple[int, str, str, bool, int]]) -> Episode:
    """Any forest: each call is (which earlier one it goes on from, what is said to it, what it says, whether somebody
    else's reply stands in between, policy version)."""
    forest = Forest(family)
    histories: list[list[Message]] = [[SYSTEM]]
    rewards = {}
    for at, says, reply, foreign, version in calls:
        before = histories[at % len(histories)]
        asked = (
            Message(role="user", content=says) if says != "29" else Message(role="tool", content=says, tool_call_id="c")
        )
        history = [*before, *([Message(role="assistant", content="other")] if foreign else []), asked]
        plan = forest.plan(history)
        ids = family.tokenizer.encode(f"{reply}<|im_end|>", special=True)
        sampled = Sampled.restore(
            token_ids=ids, logprobs=hash_logprobs(plan.prompt, ids), finish=Finish.STOP,
            policy_versions=np.where(np.arange(len(ids)) % 3 == 0, version, version + 1),
        )  # fmt: skip
        node = forest.commit(plan, sampled, family.parse(ids), sampling=Sampling())
        rewards[node.id] = version / 4
        histories.append([*history, node.turn.message()])
    trace = Trace(
        trajectory="k#5/0", group=GroupId(task="k", ordinal=5), role="agent", policy="main", task=TaskRow(key="k"),
        nodes=tuple(forest.nodes), divergences=tuple(forest.differences), turn_rewards=rewards,
        reward=Reward(total=1.0), outcome=Outcome.COMPLETED,
    )  # fmt: skip
    return Episode(batch="step-000003", number=7, trace=trace, emission=emission(trace))


def same(sample: Sample, told: dict, tokens: list, mask: list, logprobs: list) -> None:
    """A training row is bit for bit what another program's row and its provenance say."""
    rewards = np.zeros(len(sample.token_ids), np.float32)
    for position, reward in told["rewards"]:
        rewards[position] = reward
    versions = [version for version, count in told["policy_versions"] for _ in range(count)]
    assert np.array_equal(tokens, sample.token_ids)
    assert np.array_equal(mask, sample.loss_mask)
    assert np.array(logprobs, np.float32).tobytes() == sample.logprobs.tobytes()
    assert np.array_equal(versions, sample.policy_versions)
    assert rewards.tobytes() == sample.rewards.tobytes()
    assert (told["weight"], told["outcome"], told["trajectory"]) == (sample.weight, "completed", "k#5/0")


@pytest.fixture
def trace(family):
    return played(family)


@pytest.fixture
def episode(trace):
    """As the eighth of an export, in the batch of step 3; it gives two rows: 0 → 2, and 3."""
    told = Episode(batch="step-000003", number=7, trace=trace, emission=emission(trace))
    assert [[span[0] for span in row.meta["spans"]] for row in told.emission.samples] == [[0, 2], [3]]
    return told
