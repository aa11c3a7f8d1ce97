"""`agar rollout` and `agar eval` from recipe to traces: everything is real but the engine, which says random words."""

import json
import sys
from pathlib import Path

import pytest

from agar.cli.main import main
from agar.ledger.trace import load_traces
from agar.types import Outcome

pytest.importorskip("uvicorn")

BROKEN = """
import agar


class Broken(agar.Env):
    def reset(self, *, seed=None, options=None):
        raise OSError("no map of the cave")


agar.register("Cave-v0", Broken)
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch, write_servable_model):
    model = write_servable_model(tmp_path / "model")
    (tmp_path / "cave_module.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cave_module", raising=False)
    path = tmp_path / "recipe.toml"
    path.write_text(f"""
[run]
dir = "{tmp_path / "runs"}"
[policies.main]
model = "{model}"
[engines]
backend = "fake"
router = "none"
[rollout]
group_size = 2
sampling = {{ max_tokens = 16 }}
[[tasks]]
env = "Guess-v0"
[[evaluate]]
env = "Guess-v0"
tasks = 3
sampling = {{ max_tokens = 16 }}
""")
    return path


def folder_of(recipe: Path) -> Path:
    (folder,) = (recipe.parent / "runs").iterdir()
    return folder


def test_rollouts_leave_a_trace_of_every_attempt(recipe, capsys):
    assert main(["rollout", str(recipe), "--groups", "2"]) == 0
    traces = list(load_traces(folder_of(recipe) / "traces" / "rollouts.jsonl"))
    assert sorted((trace.group.ordinal, trace.trajectory[-2:]) for trace in traces) == [
        (0, "/0"), (0, "/1"), (1, "/0"), (1, "/1"),
    ]  # fmt: skip
    assert all(trace.nodes and trace.outcome.trainable for trace in traces)
    assert "4 episodes: " in capsys.readouterr().out


def test_an_evaluation_leaves_traces_and_numbers(recipe, capsys):
    assert main(["eval", str(recipe), "evaluate.0.attempts=2"]) == 0
    folder = folder_of(recipe)
    (row,) = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(list(load_traces(folder / "traces" / "eval-0.jsonl"))) == row["eval/Guess-v0/trajectories"] == 6
    assert "over 6 episodes" in capsys.readouterr().out


def test_rollouts_that_all_failed_say_why_and_fail(recipe, capsys):
    assert main(["rollout", str(recipe), "--groups", "1", "--tasks.0.env", "cave_module:Cave-v0"]) == 1
    assert "2 of them failed, the last because" in (shown := capsys.readouterr().err)
    assert "no map of the cave" in shown
    traces = load_traces(folder_of(recipe) / "traces" / "rollouts.jsonl")
    assert {trace.outcome for trace in traces} == {Outcome.ENV_ERROR}


def test_an_evaluation_of_which_nothing_counts_fails(recipe, capsys):
    assert main(["eval", str(recipe), "--evaluate.0.env", "cave_module:Cave-v0"]) == 1
    shown = capsys.readouterr().out
    assert "reward nan" in shown
    assert "no map of the cave" in shown


def test_a_program_plays_the_rollouts_of_a_recipe_that_names_a_harness(recipe):
    with recipe.open("a") as file:
        file.write(f"""
[agent]
type = "harness"
isolation = "none"
command = ["{sys.executable}", "-I", "-S", "ask.py", "{{prompt}}"]
timeout_s = 50
[agent.files]
"ask.py" = '''
import json, os, sys, urllib.request
body = json.dumps({{"model": "any", "messages": [{{"role": "user", "content": sys.argv[1]}}]}}).encode()
headers = {{"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
with urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(request) as reply:
    sys.stdout.buffer.write(repr(json.load(reply)["choices"][0]["message"]["content"]).encode())
'''
""")
    assert main(["rollout", str(recipe), "--groups", "1"]) == 0
    traces = list(load_traces(folder_of(recipe) / "traces" / "rollouts.jsonl"))
    assert len(traces) == 2
    for trace in traces:
        assert trace.outcome.trainable, trace.reason
        runs = trace.meta["agent"]["runs"]
        assert [run["code"] for run in runs] == [0] * len(trace.nodes)
        assert runs[-1]["stdout"]
