"""`docs/settings.md` is what `docs/settings.py` makes, and no setting is left out or without a sentence."""

import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scripts import script

from agar.config import BaseConfig, resolve
from agar.config.paths import all_paths
from agar.recipe.config import Recipe

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def settings():
    with script(ROOT / "docs" / "settings.py") as module:
        yield module


def below(model: type[BaseConfig]) -> Iterator[type[BaseConfig]]:
    for one in model.__subclasses__():
        yield one
        yield from below(one)


def test_the_page_is_what_the_script_makes(settings):
    assert settings.page() == settings.PAGE.read_text("utf-8"), "run python docs/settings.py"


def test_every_settings_class_is_on_the_page(settings):
    command = ["git", "grep", "-lE", r"\((BaseConfig|\w*Config)\):", "--", "*.py", ":!tests", ":!docs", ":!benchmarks"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout.split()
    for name in found:
        importlib.import_module("agar." + name.removeprefix("src/agar/").removesuffix(".py").replace("/", "."))
    classes = {one for one in below(BaseConfig) if one.__module__.startswith("agar.")}
    shown = set(settings.reached())
    bases = {base for one in shown for base in one.__mro__}
    assert {one.__name__ for one in classes - bases} == set()


def test_every_setting_has_a_sentence(settings):
    shown = [(model, row) for model in settings.reached() for row in settings.rows(model)]
    bare = {f"{model.__name__}.{row.name}" for model, row in shown if not row.sentence}
    assert bare == set()


def test_every_path_of_a_recipe_is_there(settings):
    page = settings.page()
    listed = {name.replace(".NAME", "").replace(".N", "") for name in re.findall(r"^\| `([\w.]+)`", page, re.MULTILINE)}
    assert {path for path in all_paths(Recipe) if path not in listed} == set()
    assert {"policies.optimizer.lr", "tasks.env", "evaluate.sampling.max_tokens"} <= listed


def test_what_the_page_says_of_a_setting_is_true(settings):
    """By hand, one of each sort: bounds, required, a choice, a default of one kind only."""
    page = settings.page()
    assert "| `run.steps` | whole number | `100` | ≥ 0 | Optimiser steps in all. |" in page
    assert "| `policies.NAME.model` | path | **required** |" in page
    assert '| `rollout.keep_groups` | `"all"` or `"mixed"` | `"all"` |' in page
    assert "| `rollout.max_turns` | whole number, or none | none | ≥ 1 |" in page
    [own] = [line for line in page.splitlines() if "algorithm.clip_low` |" in line and "gspo" in line]
    assert "`0.0003`" in own
    overrides = ["--policies.main.model=.", "--policies.main.algorithm.type=gspo"]
    assert resolve(Recipe, overrides=overrides).config.policies["main"].algorithm.clip_low == 0.0003


def test_links_within_the_page_lead_to_headings(settings):
    page = settings.page()
    headings = {settings.anchor(title) for title in re.findall(r"^##+ (.+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) - headings == set()
