"""The official clients of OpenAI and Anthropic, which agar's own environment has, in loops of a few lines."""

import sys
from pathlib import Path

import pytest
from tests.agents.harness.clients.conftest import call

from agar.agents.config import HarnessConfig

pytestmark = pytest.mark.timeout(180)  # the clients take seconds to import on a busy machine

PROGRAMS = Path(__file__).parent / "programs"
HUNT = [call("sh", "Let me look.", command="cat 47"), call("sh", command="cat 12"), "gold 29"]


@pytest.mark.parametrize("how", ["whole", "stream"])
@pytest.mark.parametrize("program", ["openai_chat", "openai_responses", "anthropic_messages"])
async def test_an_official_client_plays_and_its_episode_is_one_exact_row(hunt, program, how):
    config = HarnessConfig(
        command=(sys.executable, "program.py", "{prompt}", how),
        files={"program.py": (PROGRAMS / f"{program}.py").read_text()},
        isolation="none",
        timeout_s=150.0,
    )
    trace, samples = await hunt(config, HUNT)
    assert [node.parent for node in trace.nodes] == [None, 0, 1]
    assert [node.messages[-1].text for node in trace.nodes[1:]] == ["box 12\n", "gold 29\n"]
    assert trace.divergences == ()
    assert len(samples) == 1
