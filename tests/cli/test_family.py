"""`agar family`."""

import json
from pathlib import Path

import pytest

from agar.cli.main import main
from agar.ledger.toy import write_toy_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_toy_model(tmp_path / "model")


def test_the_list_names_families_by_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["family", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"chatml", "qwen2.5", "qwen3", "qwen3.5", "glm4.5", "glm4.7", "deepseek-r1", "llama3"} <= set(found.values())
    assert main(["family", "list"]) == 0
    assert all(key in capsys.readouterr().out for key in list(found)[:1])


def test_a_family_that_fits_its_model_passes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["family", "check", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "registered for chatml" in shown
    assert shown.count("  held ") == 8


def test_another_family_over_the_template_shows_the_first_difference(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["family", "check", str(model), "--family", "qwen3.5"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED   parse reads what the model writes: a call and its result: expected" in shown


def test_an_unknown_template_is_code_1_and_names_the_families(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = model / "chat_template.jinja"
    template.write_text(template.read_text("utf-8") + "{# mine #}", "utf-8")
    assert main(["family", "check", str(model)]) == 1
    assert "capture path" in capsys.readouterr().out
    assert main(["family", "check", str(model), "--family", "qwen3"]) == 0  # a family may fit all the same


def test_an_end_that_the_family_does_not_know_fails(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2, 300]}), "utf-8")
    assert main(["family", "check", str(model)]) == 1
    assert "FAILED   whatever ends a reply is a stop token" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["no-such-folder"], ["MODEL", "--family", "qwen9"]])
def test_what_cannot_be_checked_is_a_line_and_code_2(
    model: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["family", "check", *[str(model) if word == "MODEL" else word for word in words]]) == 2
    assert capsys.readouterr().err
