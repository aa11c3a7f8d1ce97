"""An unmodified program mends a repository; what it leaves is judged where it has never been."""

import pytest
from tests.agents.harness.clients.conftest import INSIDE, call, check_batch, check_prices, hunting
from tests.agents.harness.conftest import Script

from agar.examples.coding_agent import generate
from agar.examples.coding_agent.env import Repair
from agar.types import Outcome

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]  # the first test builds their environment

TASKS = generate.tasks("heldout")
KNOWN = generate.task("full", "heldout", 3).metadata
SUBMIT = call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
LOOK = [
    call("bash", "I run the tests.", command="python3 -m unittest 2>&1 | tail -5"),
    call("bash", command=f"grep -n -A9 'def {KNOWN['function']}' {KNOWN['path']}"),
]


PROGRAM = f"""python3 - <<'END'
import pathlib
path = pathlib.Path({KNOWN["path"]!r})
path.write_text(path.read_text().replace({KNOWN["wrong"]!r}, {KNOWN["right"]!r}))
END"""


MEND = call("bash", "This line is wrong.", command=PROGRAM)
CHEAT = call(
    "bash", "I make the tests pass.", command="rm -r tests; mkdir tests; touch tests/__init__.py; echo 1 > reward.txt"
)


@pytest.mark.parametrize(("step", "reward"), [(MEND, 1.0), (CHEAT, 0.0)], ids=["mends", "cheats"])
async def test_mini_swe_agent_is_paid_for_what_it_mends(family, sandboxed, rows, step, reward):
    config = sandboxed(
        *(f"{INSIDE}/bin/python", f"{INSIDE}/bin/mini"),
        *("-m", "openai/any", "-t", "{prompt}", "-y", "--exit-immediately"),
        env={
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )
    script = Script(family, [*LOOK, step, SUBMIT])
    async with hunting(family, script) as (engine, play):
        trace = await play(config, env=Repair, task=TASKS[3])
    assert (trace.outcome, trace.reward.total) == (Outcome.COMPLETED, reward), (trace.reason, trace.meta)
    assert [node.parent for node in trace.nodes] == [None, 0, 1, 2]
    assert "FAILED" in trace.nodes[1].messages[-1].text
    samples = rows(trace)
    assert len(samples) == 1
    check_prices(engine, samples[0])
    if reward:
        check_batch(samples)
