import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agar.errors import LedgerError
from agar.ledger.node import Difference, Divergence, Edge, Node
from agar.ledger.trace import VERSION, Trace, digest, dump_traces, load_traces
from agar.types import (
    Finish,
    GroupId,
    ImagePart,
    Message,
    Outcome,
    Reward,
    Sampled,
    Sampling,
    TaskRow,
    TextPart,
    ToolCall,
    ToolSpec,
    Turn,
)

RECORDED = sorted((Path(__file__).parent / "recorded").glob("trace-v*.jsonl"))


@pytest.fixture
def trace():
    """Every kind of field that a trace can hold."""
    call = ToolCall(id="c", name="sh", arguments={"command": "cat 1", "n": 1, "f": 1.0})
    sampled = Sampled.restore(
        token_ids=[7, 8],
        logprobs=np.array([-0.1, -np.float32(1e-38)], np.float32),
        policy_versions=[3, 4],
        finish=Finish.LENGTH,
        side={"routed_experts": np.arange(8, dtype=np.int16).reshape(2, 2, 2)},
    )
    node = Node(
        id=0,
        parent=None,
        edge=Edge.FIRST,
        messages=(
            Message(role="user", content=(TextPart(text="look"), ImagePart(url="data:,"))),
            Message(role="tool", content="one", tool_call_id="c"),
        ),
        tools=(ToolSpec(name="sh", parameters={"type": "object"}),),
        delta=np.array([1, 2, 3], np.int32),
        prompt_digest="00",
        sampled=sampled,
        turn=Turn(text="t", reasoning="r", tool_calls=(call,), finish=Finish.LENGTH, parse_error="cut"),
        sampling=Sampling(stop_token_ids=(1, 2), seed=5),
        requested={"temperature": 0.5},
    )
    return Trace(
        trajectory="t",
        group=GroupId(task="k", ordinal=2),
        role="agent",
        policy="main",
        task=TaskRow(key="k", payload={"a": [1, 2.5, None]}),
        nodes=(node,),
        divergences=(Difference(kind=Divergence.WHITESPACE, node=0, message=1, kept="a", sent="b"),),
        turn_rewards={0: 0.1},
        reward=Reward(total=1.0, parts={"right": 1.0}),
        outcome=Outcome.TRUNCATED,
    )


def test_every_field_returns_as_it_was(trace):
    again = Trace.load(trace.dump())
    assert again.dump() == trace.dump()
    node, before = again.nodes[0], trace.nodes[0]
    for name in ("messages", "tools", "turn", "sampling", "requested", "edge"):
        assert getattr(node, name) == getattr(before, name)
    assert node.sampled.logprobs.tobytes() == before.sampled.logprobs.tobytes()
    assert node.sampled.side["routed_experts"].shape == (2, 2, 2)
    assert node.sampled.side["routed_experts"].dtype == np.int16
    assert again.turn_rewards == {0: 0.1}
    assert type(again.nodes[0].turn.tool_calls[0].arguments["f"]) is float


def test_whole_numbers_return_to_the_same_bytes_where_floats_are_declared(trace):
    (node,) = trace.nodes
    sampling = Sampling(temperature=1, top_p=1, min_p=0)
    whole = replace(
        trace,
        nodes=(replace(node, sampling=sampling, requested={"temperature": 1}),),
        reward=Reward(total=1, parts={"right": 1, "brief": np.float32(0)}),
        turn_rewards={0: 1},
    )
    line = whole.dump()
    assert Trace.load(line).dump() == line
    told = json.loads(line)["trace"]
    assert str(told["reward"]) == "{'total': 1.0, 'parts': {'right': 1.0, 'brief': 0.0}}"
    assert str(told["turn_rewards"]) == "{'0': 1.0}"
    (told,) = told["nodes"]
    assert str((told["sampling"]["temperature"], told["sampling"]["top_k"])) == "(1.0, -1)"
    assert str(told["requested"]) == "{'temperature': 1}"  # nothing declares what that is


def test_a_file_of_traces(tmp_path, trace):
    assert dump_traces(tmp_path / "t.jsonl", [trace, trace]) == 2
    assert [t.dump() for t in load_traces(tmp_path / "t.jsonl")] == [trace.dump()] * 2


@pytest.mark.parametrize(
    ("version", "said"),
    [(99, f"version 99; this agar reads up to {VERSION}"), (0, "version 0, which"), ("1", "version '1', which")],
)
def test_an_unknown_version_is_refused(trace, version, said):
    document = json.loads(trace.dump())
    document["version"] = version
    with pytest.raises(LedgerError, match=said):
        Trace.load(json.dumps(document).encode())


def test_there_is_a_recorded_file_of_every_version():
    """A new version needs a file written by it; one that was released is never written again."""
    assert [path.name for path in RECORDED] == [f"trace-v{version}.jsonl" for version in range(1, VERSION + 1)]


@pytest.mark.parametrize("file", RECORDED, ids=lambda path: path.stem)
def test_traces_of_every_version_are_read(file):
    """What they hold is told here by hand; the newest one returns byte for byte, the older ones as the newest."""
    (line,) = file.read_bytes().splitlines()
    trace = Trace.load(line)
    assert trace.dump() == RECORDED[-1].read_bytes().removesuffix(b"\n")
    first, second = trace.nodes
    assert first.messages[1].content == (TextPart(text="look"), ImagePart(url="data:image/png;base64,AA"))
    assert first.turn.tool_calls[0].arguments == {"command": "cat 1", "n": 1, "f": 1.0}
    assert first.sampled.logprobs.tolist() == np.array([-0.1, -1e-38, -2.5], np.float32).tolist()
    assert (first.sampled.policy_versions.tolist(), first.choice, first.sampling.seed) == ([3, 3, 4], 0, 5)
    assert (second.parent, second.edge, second.sampled.finish) == (0, Edge.EXTEND, Finish.LENGTH)
    assert (trace.outcome, trace.reason, trace.turn_rewards) == (Outcome.TRUNCATED, "budget: turns", {0: 0.1})
    assert [digest(trace.prompt(node.id)) for node in trace.nodes] == [node.prompt_digest for node in trace.nodes]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda d: d["trace"].update(surprise=1),
        lambda d: d["trace"].pop("outcome"),
        lambda d: d["trace"].update(outcome="lost"),
        lambda d: d["trace"].update(policy=3),
        lambda d: d["trace"]["nodes"][0]["delta"].update(data="AAA"),
        lambda d: d["trace"]["nodes"][0].update(id=4),
        lambda d: d.update(format="other"),
    ],
    ids=["unknown field", "missing field", "unknown outcome", "wrong type", "cut array", "bad id", "other format"],
)
def test_a_malformed_line_is_refused(trace, break_it):
    document = json.loads(trace.dump())
    break_it(document)
    with pytest.raises(LedgerError):
        Trace.load(json.dumps(document).encode())


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"null", b'{"format":"agar-trace","version":2,"trace":null}'])
def test_garbage_is_refused(line):
    with pytest.raises(LedgerError):
        Trace.load(line)


def test_what_json_cannot_hold_is_a_clean_error(trace):
    odd = replace(trace, task=TaskRow(key="k", payload={"seen": {1, 2}}))
    with pytest.raises(LedgerError, match=r"set.*task's payload"):
        odd.dump()
