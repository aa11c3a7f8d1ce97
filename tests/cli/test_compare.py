"""`agar compare` over a run that a real rollout wrote."""

import shutil

from agar.cli.main import main


def test_two_runs_become_one_picture(small_run, tmp_path, capsys):
    for seed in (1, 2):
        shutil.copytree(small_run, tmp_path / f"seed-{seed}")
        (tmp_path / f"seed-{seed}" / "metrics.jsonl").write_text('{"step": 1, "rollout/reward_mean": 0.5}\n')
    runs = [str(tmp_path / f"seed-{seed}") for seed in (1, 2)]
    out = tmp_path / "both.png"
    assert main(["compare", *runs, "--labels", "seed 1", "seed 2", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_bytes().startswith(b"\x89PNG")
    for labels in (["a"], ["a", "a"], ["a", "a", "b"]):
        assert main(["compare", *runs, "--labels", *labels, "--out", str(out)]) == 2
        assert f"2 runs need as many different --labels, got {' '.join(labels)}\n" in capsys.readouterr().err
    (tmp_path / "seed-2" / "metrics.jsonl").unlink()
    assert main(["compare", *runs, "--out", str(out)]) == 2
    assert "has no metrics.jsonl" in capsys.readouterr().err


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert main(["compare", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
