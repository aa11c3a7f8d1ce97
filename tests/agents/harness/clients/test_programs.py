"""Agent programs from their own environment, unmodified, each in a sandbox whose only way out is the gateway."""

from pathlib import Path

import pytest
from tests.agents.harness.clients.conftest import INSIDE, call

from agar.ledger.node import Divergence

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]  # the first test builds their environment

PROGRAMS = Path(__file__).parent / "programs"
SH = [call("sh", "Let me look.", command="cat 47"), call("sh", command="cat 12"), "gold 29"]
BASH = [
    call("bash", "Let me look.", command="cat 47"),
    call("bash", command="cat 12 | tee answer.txt"),
    call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
]
CODE = ["I look.\n<code>\nprint(sh('cat 47'))\n</code>", "<code>\nfinal_answer(sh('cat 12').strip())\n</code>"]
FINAL = [*SH[:2], call("final_answer", answer="gold 29")]


@pytest.fixture
def script(sandboxed):
    """Settings of one of our few lines over a library."""

    def settings(name, *words):
        files = {"program.py": (PROGRAMS / f"{name}.py").read_text()}
        return sandboxed(f"{INSIDE}/bin/python", "program.py", "{prompt}", *words, files=files)

    return settings


@pytest.mark.parametrize(
    ("program", "how", "replies", "differences"),
    [
        ("openai_agents", "responses", SH, []),
        ("openai_agents", "chat", SH, []),
        ("langgraph_agent", "responses", SH, []),
        ("langgraph_agent", "chat", SH, [Divergence.ARGUMENTS_RESPELLED] * 2),
    ],
)
async def test_an_agent_library_plays_and_its_episode_is_one_row(hunt, script, program, how, replies, differences):
    trace, samples = await hunt(script(program, how), replies)
    assert [node.parent for node in trace.nodes] == [None, 0, 1]
    assert [difference.kind for difference in trace.divergences] == differences
    assert len(samples) == 1


@pytest.mark.parametrize(("how", "replies"), [("tools", FINAL), ("code", CODE)])
async def test_a_library_that_retells_its_history_is_trained_call_by_call(hunt, script, how, replies):
    """Smolagents tells the model's tool calls to it as text, so that no call continues the one before."""
    trace, samples = await hunt(script("smol_agent", how), replies)
    assert [node.parent for node in trace.nodes] == [None] * len(replies)
    assert {difference.kind for difference in trace.divergences} == {Divergence.FOREIGN_REPLY}
    assert len(samples) == len(replies)


async def test_mini_swe_agent_plays_and_its_episode_is_one_row(hunt, sandboxed):
    config = sandboxed(
        *(f"{INSIDE}/bin/python", f"{INSIDE}/bin/mini"),  # the script's first line names the place outside
        *("-m", "openai/any", "-t", "{prompt}", "-y", "--exit-immediately"),
        env={
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        answer_file="answer.txt",
    )
    trace, samples = await hunt(config, BASH)
    assert [node.parent for node in trace.nodes] == [None, 0, 1]
    assert trace.divergences == ()
    assert len(samples) == 1
