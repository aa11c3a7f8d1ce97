"""The tutorial's environment: twelve lines, a real Gymnasium environment, and what its page shows."""

import re
from pathlib import Path

import pytest

import agar
from agar.cli.main import main
from agar.envs.registry import spec

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "new_env"
PAGE = (ROOT / "docs" / "tutorial.md").read_text()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the example's folder, where `agar` finds the module."""
    monkeypatch.chdir(EXAMPLE)
    monkeypatch.syspath_prepend(str(EXAMPLE))


def block(language: str) -> str:
    """The page's first block in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_it_has_twelve_lines_imports_and_all() -> None:
    lines = (EXAMPLE / "sort.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 12
    assert ";" not in "".join(lines)
    assert max(map(len, lines)) <= 80


def test_the_page_shows_the_files() -> None:
    assert block("python") == (EXAMPLE / "sort.py").read_text()
    without_comment = (EXAMPLE / "train.toml").read_text().split("\n", 2)[2]
    assert block("toml") == without_comment


def test_gold_sorts_and_a_wrong_number_ends_it(here: None) -> None:
    env = agar.make("sort:Sort-v0")
    shown, _ = env.reset(seed=3)
    numbers = [int(number) for number in re.findall(r"\d", shown)]
    earned = []
    for number in sorted(numbers):
        assert env.unwrapped.gold() == str(number)  # type: ignore[attr-defined]
        _, reward, terminated, _, _ = env.step(f"I say {number}")
        earned.append(reward)
    assert terminated
    assert sum(earned) == pytest.approx(1.0)
    env.reset(seed=3)
    assert env.step(str(max(numbers)))[1:3] == (0.0, True)


def test_it_passes_every_level_of_the_check(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", "sort:Sort-v0"]) == 0
    shown = capsys.readouterr().out
    assert "L0 ok   gymnasium interface" in shown
    assert "L5 ok" in shown
    assert len(spec("sort:Sort-v0").tasks("heldout")) > 128
