"""Everything that the documentation shows works.

- A `python` block runs in a fresh process, in an empty folder.
- A `toml` block is a recipe or part of one (or of the settings class named in the comment before it).
- A `json` block is JSON.
- A line of a `bash` block is one of the forms in `COMMANDS`: a target that the Makefile has, an `agar` command that
  the real parser takes (with settings that the real recipe takes), an existing module, file or extra.
"""

import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from agar.cli.commands import COMMANDS as COMMANDS_OF_AGAR
from agar.cli.main import parse
from agar.config import BaseConfig, resolve
from agar.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^( *)```([A-Za-z]*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!--\s*(continues|settings:\s*\S+)\s*-->\s*\Z")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block.

    `note` is the comment on the line before it: `continues` puts the page's earlier Python blocks in front of it;
    `settings: module:Class` says which settings class a TOML block is for, where that is not the recipe's.
    """

    page: Path
    line: int
    language: str
    text: str
    note: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page that a reader is meant to follow."""
    folders = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted([*folders, ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        note = NOTE.search(text[: match.start()])
        indent = match.group(1)
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start()) + 1,
                language=match.group(2).lower(),
                text="".join(line.removeprefix(indent) for line in match.group(3).splitlines(keepends=True)),
                note=note.group(1) if note else "",
            )
        )
    return found


def blocks(*languages: str) -> list[Block]:
    """All blocks in these languages."""
    return [block for page in pages() for block in blocks_of(page) if block.language in languages]


SHOWN = {"", "text", "mermaid", "diff", "console"}
"""Languages that are only shown."""


def named(block: Block) -> str:
    return block.name


@pytest.mark.timeout(180)
@pytest.mark.parametrize("block", blocks("python", "py"), ids=named)
def test_python_runs(block: Block, tmp_path: Path) -> None:
    code = block.text
    if block.note == "continues":
        earlier = [b for b in blocks_of(block.page) if b.language in {"python", "py"} and b.line < block.line]
        code = "\n".join(b.text for b in [*earlier, block])
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = tmp_path / "block.py"
    script.write_text(code)
    answer = subprocess.run(
        [sys.executable, "-P", str(script)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=170
    )
    assert answer.returncode == 0, f"{block.name}:\n{answer.stdout}{answer.stderr}"


@pytest.mark.parametrize("block", blocks("toml"), ids=named)
def test_settings_are_valid(block: Block, tmp_path: Path) -> None:
    place = block.note.partition(":")[2].strip() if block.note.startswith("settings:") else "agar.recipe.config:Recipe"
    module, _, name = place.partition(":")
    settings: type[BaseConfig] = getattr(importlib.import_module(module), name)
    (tmp_path / "block.toml").write_text(block.text)
    assert tomllib.loads(block.text), "an empty block shows nothing"
    try:
        resolve(settings, files=[tmp_path / "block.toml"])
    except ConfigError as error:
        # Part of a recipe may leave out what the rest of it sets.
        wrong = [line for line in str(error).splitlines() if "is missing and has no default" not in line]
        assert [line for line in wrong if not re.fullmatch(r"\d+ settings are wrong:", line)] == []


def test_json_is_json() -> None:
    for block in blocks("json"):
        json.loads(block.text)


def _make(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = [word for word in words if "=" not in word and not word.startswith("-")]
    assert set(wanted) <= targets, f"make has no target {sorted(set(wanted) - targets)}"


def _agar(words: list[str]) -> None:
    options = parse(words)
    if COMMANDS_OF_AGAR[options.command].overrides:
        from agar.cli.recipes import take_recipe
        from agar.recipe.config import Recipe

        recipe, overrides = take_recipe(options)
        if recipe is not None:
            resolve(Recipe, files=[ROOT / recipe], overrides=overrides)


def _python(words: list[str]) -> None:
    words = [word for word in words if word != "-P"]
    if words[0] == "-m":
        assert words[1] == "venv" or importlib.util.find_spec(words[1]) is not None, f"there is no module {words[1]}"
        if words[1:3] == ["pip", "install"]:
            _pip(words[2:])
    else:
        assert (ROOT / words[0]).is_file(), f"there is no file {words[0]}"


def _pip(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert words[0] == "install"
    for listed in re.findall(r"\[([a-z, ]+)\]", " ".join(words)):
        assert {extra.strip() for extra in listed.split(",")} <= set(extras), f"agar has no extra among {listed!r}"


def _pytest(words: list[str]) -> None:
    for word in words:
        if word.startswith("tests"):
            assert (ROOT / word.partition("::")[0]).exists(), f"there is no {word}"


def _anything(words: list[str]) -> None:
    """Nothing of ours to check."""


COMMANDS: Mapping[str, Callable[[list[str]], None]] = {
    "make": _make,
    "agar": _agar,
    "python": _python,
    "python3": _python,
    "pip": _pip,
    "pytest": _pytest,
    "git": _anything,
    "cd": _anything,
    "export": _anything,
    "source": _anything,
}


def commands_of(block: Block) -> list[list[str]]:
    """The commands of a bash block: continued lines joined, prompts and settings of variables taken off."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s&&\s", line.strip().removeprefix("$ ")):
            words = shlex.split(part, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words:
                found.append(words)
    return found


@pytest.mark.parametrize("block", blocks("bash", "sh", "shell"), ids=named)
def test_commands_exist(block: Block) -> None:
    for program, *words in commands_of(block):
        known = COMMANDS.get(Path(program).name)
        assert known is not None, f"{block.name}: {program!r} is none of {sorted(COMMANDS)}"
        try:
            known(words)
        except (SystemExit, ConfigError) as error:
            pytest.fail(f"{block.name}: `{program} {' '.join(words)}` is refused: {error}")


def test_every_block_is_in_a_language_that_is_checked_or_only_shown() -> None:
    checked = {"python", "py", "toml", "json", "bash", "sh", "shell"}
    unknown = {b.name: b.language for page in pages() for b in blocks_of(page) if b.language not in checked | SHOWN}
    assert unknown == {}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    lost = [
        t for t in targets if t and "://" not in t and not t.startswith("mailto:") and not (page.parent / t).exists()
    ]
    assert lost == []


def test_every_environment_variable_that_is_read_is_in_the_table() -> None:
    listed = subprocess.run(
        ["git", "grep", "-hoE", "AGAR_[A-Z_]+", "--", "*.py", "Makefile", ".ci/run", ":!tests/*/*"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=30,
    ).stdout.split()  # fmt: skip
    rooms = ["src", "agents", "envs", "examples", "requirements", "rollout", "sandbox", "tool_servers", "trainer"]
    read = re.compile(r"""(?:environ\.get\(|getenv\(|VARIABLE = |_variable: str = )["']([A-Z0-9_]+)["']""")
    for room in rooms:
        for path in (ROOT / room).rglob("*.py"):
            listed += read.findall(path.read_text("utf-8"))
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert sorted({name for name in listed if f"`{name}`" not in page}) == []
