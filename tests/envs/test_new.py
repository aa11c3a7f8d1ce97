"""What is written passes its own test and the check."""

import os
import subprocess
import sys
import tomllib

import pytest

from agar.envs.new import new_env
from agar.errors import ConfigError


def test_a_new_package_passes_its_own_tests(tmp_path):
    made = new_env("word-maze", tmp_path)
    assert (made.folder, made.package, made.id) == (tmp_path / "word-maze", "word_maze", "WordMaze-v0")
    project = tomllib.loads((made.folder / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["agar.envs"] == {"word_maze": "word_maze"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=made.folder, env=env, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_its_recipe_trains_in_the_new_environment(tmp_path):
    made = new_env("word-maze", tmp_path)
    recipe = tomllib.loads((made.folder / "train.toml").read_text())
    assert [recipe[table][0]["env"] for table in ("tasks", "evaluate")] == [made.id] * 2


@pytest.mark.parametrize("name", ["", "Maze", "9maze", "word maze", "../maze", "class", "maze-"])
def test_a_name_that_cannot_be_used_is_refused(name, tmp_path):
    with pytest.raises(ConfigError, match="cannot name a package"):
        new_env(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("json", "standard library"),
        ("test", "standard library"),
        ("agar", "uses itself"),
        ("tests", "uses itself"),
        ("numpy", "installed package in .*numpy"),
    ],
)
def test_a_name_that_would_hide_something_is_refused(name, hidden, tmp_path):
    with pytest.raises(ConfigError, match=f"a package '{name}' would hide .*{hidden}"):
        new_env(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_written_over(tmp_path):
    new_env("maze", tmp_path)
    with pytest.raises(ConfigError, match="is there already"):
        new_env("maze", tmp_path)
