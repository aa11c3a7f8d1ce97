"""Importing a room or its settings is cheap: no heavy package comes along."""

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "agar"
HEAVY = ("torch", "ray", "sglang", "megatron", "docker", "openai", "transformers", "matplotlib")


def light_modules() -> list[str]:
    """Every room's and folder's `__init__`, and every `config`."""
    found = []
    for folder, _, files in os.walk(SOURCE, followlinks=True):
        package = ".".join(["agar", *Path(folder).relative_to(SOURCE).parts])
        if "__init__.py" in files:
            found.append(package)
            found += [f"{package}.config"] if "config.py" in files else []
    return sorted(found)


def fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=50)


def test_importing_agar_loads_no_third_party_module() -> None:
    answer = fresh(
        "import sys, json\n"
        "before = set(sys.modules)\n"
        "import agar\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(json.dumps(sorted(new - set(sys.stdlib_module_names) - {'agar'})))\n"
    )
    assert json.loads(answer.stdout) == [], answer.stderr


def test_an_environment_needs_none_of_what_settings_are_made_of() -> None:
    answer = fresh("import sys; from agar.envs import Env, make, register; sys.exit('pydantic' in sys.modules)")
    assert answer.returncode == 0, "import what needs pydantic where it is used"


def test_no_room_or_config_loads_a_heavy_package() -> None:
    modules = light_modules()
    assert {"agar.config", "agar.envs", "agar.trainer.config", "agar.rollout.config", "agar.cli"} <= set(modules)
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = [other for other in {HEAVY!r} if other in sys.modules]\n"
        "    if heavy: sys.exit(f'import {name} loads {heavy}: import them where they are used')\n"
    )
    answer = fresh(code)
    assert answer.returncode == 0, answer.stderr
