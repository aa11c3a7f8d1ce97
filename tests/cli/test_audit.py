"""`agar audit` over traces that a real rollout wrote: the report, its JSON, the exit code."""

import json
import subprocess
import sys
from datetime import date

import numpy as np
import pytest
from tests.ledger.families.conftest import HERE, TOKENS, write_model

from agar.cli.main import main
from agar.ledger.families import family_for
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace, dump_traces, load_traces
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, TaskRow


def test_a_run_passes_and_the_report_adds_up(small_run, capsys):
    assert main(["audit", str(small_run)]) == 0
    out = capsys.readouterr().out
    assert "4 traces in 1 file" in out
    assert out.rstrip().endswith("0")
    assert "I6   not checked: policy 'main' came without its family" in out
    assert main(["audit", str(small_run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    traces = list(load_traces(small_run / "traces" / "rollouts.jsonl"))
    assert report["ok"]
    assert report["sampled_tokens"] == sum(len(node.sampled) for trace in traces for node in trace.nodes) > 0
    assert report["trained_tokens"] + sum(report["excluded"].values()) == report["sampled_tokens"]


def test_a_violation_is_named_and_the_exit_code_is_1(small_run, tmp_path, capsys):
    (line, *_) = (small_run / "traces" / "rollouts.jsonl").read_bytes().splitlines()
    trace = Trace.load(line)
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(line.replace(trace.nodes[0].prompt_digest.encode(), b"0" * 32) + b"\n")
    assert main(["audit", str(bad)]) == 1
    assert f"I7 in {trace.trajectory}: the recorded prompt of node 0" in capsys.readouterr().out
    assert main(["audit", str(bad), "--json"]) == 1
    assert [v["invariant"] for v in json.loads(capsys.readouterr().out)["violations"]] == ["I7"]


def test_a_model_folder_has_the_prompts_rendered_again(small_run, tmp_path, capsys):
    model = json.loads((small_run / "recipe.json").read_text())["policies"]["main"]["model"]
    assert main(["audit", str(small_run), "--model", f"main={model}"]) == 0
    out = capsys.readouterr().out
    assert "I6   looked at              4  traces" in out
    assert "I6   not checked" not in out
    (line, *_) = (small_run / "traces" / "rollouts.jsonl").read_bytes().splitlines()
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(line.replace(b'"role":"user","content":"', b'"role":"user","content":"Psst. ', 1) + b"\n")
    assert main(["audit", str(bad)]) == 0
    assert main(["audit", str(bad), "--model", model]) == 1
    assert "the prompt of node 0 is not what the chatml family renders" in capsys.readouterr().out
    assert main(["audit", str(small_run), "--model", str(tmp_path)]) == 2


def write_run(folder, family, ledger):
    """A run folder with one episode of two calls, and ledger settings in its recipe."""
    forest = Forest(family)
    history = [Message(role="user", content="What is in the box?")]
    for said in ("Gold.", "Yes."):
        plan = forest.plan(history)
        ids = np.array([*family.tokenizer.encode(said), family.stop_ids[0]], np.int32)
        sampled = Sampled.restore(
            token_ids=ids, logprobs=hash_logprobs(plan.prompt, ids), policy_versions=np.zeros(len(ids)),
            finish=Finish.STOP,
        )  # fmt: skip
        turn = family.parse(ids, prompt=plan.prompt)
        history += [forest.commit(plan, sampled, turn, sampling=Sampling()).turn.message()]
        history += [Message(role="user", content="Sure?")]
    trace = Trace(
        trajectory="t0", group=GroupId(task="k", ordinal=0), role="agent", policy="main", task=TaskRow(key="k"),
        nodes=tuple(forest.nodes), divergences=tuple(forest.differences), reward=Reward(total=1.0),
        outcome=Outcome.COMPLETED,
    )  # fmt: skip
    (folder / "traces").mkdir(parents=True)
    dump_traces(folder / "traces" / "rollouts.jsonl", [trace])
    (folder / "recipe.json").write_text(json.dumps({"ledger": ledger}))


DATED = "Today: {{ strftime_now('%d %b %Y') }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


@pytest.mark.parametrize(
    ("template", "ledger", "other"),
    [(None, {"thinking": False}, {"thinking": None}), (DATED, {"today": "2024-07-26"}, {"today": "2024-07-27"})],
)
def test_prompts_are_rendered_with_the_runs_own_ledger_settings(tmp_path, capsys, template, ledger, other):
    template = template or (HERE / "templates" / "qwen3.jinja").read_text("utf-8")
    model = write_model(tmp_path / "model", template, TOKENS["qwen3"])
    run, today = tmp_path / "run", ledger.get("today")
    family = family_for(model, thinking=ledger.get("thinking"), today=today and date.fromisoformat(today))
    write_run(run, family, ledger)
    assert main(["audit", str(run), "--model", str(model)]) == 0, capsys.readouterr().out
    assert main(["audit", str(run / "traces" / "rollouts.jsonl"), "--model", str(model)]) == 0
    (run / "recipe.json").write_text(json.dumps({"ledger": other}))
    assert main(["audit", str(run), "--model", str(model)]) == 1
    assert "I6 in t0: the prompt of node 0" in capsys.readouterr().out


def test_many_violations_are_counted_not_all_printed(tmp_path, capsys):
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"{}\n" * 12)
    assert main(["audit", str(bad)]) == 1
    out = capsys.readouterr().out
    assert out.count("I14 in bad.jsonl:") == 5
    assert "I14: 7 more (--json prints all)" in out


def test_nothing_to_audit_is_a_wrong_command_line(tmp_path, capsys):
    assert main(["audit", str(tmp_path)]) == 2
    assert "holds no traces" in capsys.readouterr().err


def test_it_needs_no_engine_and_no_tokenizer(small_run):
    code = (
        "import sys\n"
        "from agar.cli.main import main\n"
        f"code = main(['audit', {str(small_run)!r}])\n"
        "heavy = {'tokenizers', 'transformers', 'torch', 'sglang', 'starlette', 'openai'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else code)\n"
    )
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=50)
    assert answer.returncode == 0, answer.stderr
