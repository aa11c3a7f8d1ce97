"""A message that names a setting of a recipe names one that exists."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agar.config.paths import is_model, members, table_value
from agar.recipe.config import Recipe

SOURCE = Path(__file__).resolve().parent.parent / "src" / "agar"
ROOMS = {"trainer", "agents", "envs", "sandbox", "record"}
"""Rooms that are called otherwise in a recipe, and a table in another one; that is how wrong names come about."""
ROOTS = "|".join(sorted(ROOMS | set(Recipe.model_fields)))
NAME = re.compile(rf"(?<![\w./'-])(?:--)?((?:{ROOTS})(?:\.\w+)+)(?![\w/(]|\.py)")


def exists(annotation: Any, path: list[str]) -> bool:
    """Whether settings of this type have this path; a name that is filled in later may be any key."""
    if not path:
        return True
    for member in members(annotation):
        if is_model(member):
            field = member.model_fields.get(path[0])
            if field is not None and exists(field.annotation, path[1:]):
                return True
        elif (value := table_value(member)) is not None:
            if exists(value, path[1:]):
                return True
        elif arguments := getattr(member, "__args__", ()):  # a list of tables
            number = path[0].isdigit() or path[0] == "NAME"
            if exists(arguments[0], path[1:] if number else path):
                return True
    return annotation is Any


def messages() -> Iterator[tuple[str, str]]:
    """Every text that is raised or logged, with its place; what is filled in reads NAME."""
    for folder, _, files in os.walk(SOURCE, followlinks=True):
        for path in (Path(folder) / name for name in files if name.endswith(".py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and said(node.func)):
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", " ".join(texts(node))


def said(function: ast.expr) -> bool:
    name = ast.unparse(function)
    return name.endswith(("Error", "print")) or name.startswith("logger.")


def texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "NAME" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def wrong(text: str) -> list[str]:
    return [found for found in NAME.findall(text) if not exists(Recipe, found.split("."))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("raise trainer.timeouts", ["trainer.timeouts"]),
        (
            "set policies.NAME.algorithm.kl_coef to 0, or policies.NAME.algorithm.kl_coeff",
            ["policies.NAME.algorithm.kl_coeff"],
        ),
        ("name tasks.NAME.split, tasks.0.path or evaluate.every_steps", []),
        ("import agar.trainer.config, look at rollout/config.py", []),
        ("set --run.steps, not --run.step.", ["run.step"]),
        ("engines.sglang.anything goes, engines.anything does not", ["engines.anything"]),
    ],
)
def test_a_name_is_looked_up_in_the_settings(text, names):
    assert wrong(text) == names


def test_every_setting_that_a_message_names_exists():
    named = 0
    unknown = set()
    for place, text in messages():
        named += len(NAME.findall(text))
        unknown |= {f"{place}: {name}" for name in wrong(text)}
    assert not unknown
    assert named > 40
