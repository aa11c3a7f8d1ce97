"""One package from many folders: links, guards, and what is in the distributions."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import agar
from agar.errors import to_install

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "agar"
ROOMS = ("agents", "envs", "examples", "rollout", "sandbox", "tool_servers", "trainer")


def tracked() -> list[str]:
    """Files of the checkout that belong to it: committed, or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout
    return [name for name in listed.splitlines() if (ROOT / name).exists()]


def packaged() -> set[str]:
    """Every file that an installation must have, by its path in the wheel."""
    found = set()
    for name in tracked():
        top, _, rest = name.partition("/")
        if name.startswith("src/agar/") and not (ROOT / name).is_symlink():
            found.add(name.removeprefix("src/"))
        elif top in ROOMS and rest:
            found.add(f"agar/{name}")
    return found


def test_every_room_is_linked_into_the_package() -> None:
    for room in ROOMS:
        link = SOURCE / room
        assert link.is_symlink(), f"src/agar/{room} must be a link: ln -s ../../{room} src/agar/{room}"
        assert link.readlink() == Path("../..") / room
        assert link.resolve() == ROOT / room


def test_bare_names_are_refused() -> None:
    code = (
        "import importlib, sys\n"
        f"for room in {ROOMS!r}:\n"
        "    try: importlib.import_module(room)\n"
        "    except ImportError as error: assert f'import agar.{room}, not {room}' in str(error), error\n"
        "    else: sys.exit(f'import {room} was not refused: add the guard to its __init__.py')\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {(ROOT / name).parent for name in tracked() if name.endswith(".py") and name.split("/")[0] in ROOMS}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_distributions_hold_everything_once_and_only_agar_at_the_top(tmp_path: Path) -> None:
    checkout, files, expected = tmp_path / "checkout", tracked(), packaged()
    for name in files:
        copy = checkout / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            copy.symlink_to((ROOT / name).readlink())
        else:
            copy.write_bytes((ROOT / name).read_bytes())
    # Without --wheel or --sdist, build makes the source distribution and then the wheel from that.
    build = [sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(checkout)]
    answer = subprocess.run(build, capture_output=True, text=True, timeout=150)
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert sorted(names) == sorted(set(names))
    assert {name.split("/")[0] for name in names} == {"agar", f"agar-{agar.__version__}.dist-info"}
    assert {name for name in names if name.startswith("agar/")} == expected
    [sdist] = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in inside if name.startswith("src/agar/") and "." in name.rsplit("/", 1)[-1]} >= {
        f"src/{name}" for name in expected
    }
    assert {"LICENSE", "README.md", "pyproject.toml"} <= inside


def test_the_version_is_the_changelogs_newest() -> None:
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == agar.__version__


def test_the_other_name_of_the_house_style_is_a_link() -> None:
    assert (ROOT / "CLAUDE.md").readlink() == Path("AGENTS.md")


def test_nobody_is_told_to_install_agar_from_an_index() -> None:
    """It is on none: the name is another project's there."""
    asks = re.compile(r"""(pip install|install) (-U )?["']?agar\b""")
    names = [name for name in tracked() if name.endswith((".py", ".md", ".txt", ".toml"))]
    assert [name for name in names if asks.search((ROOT / name).read_text("utf-8"))] == []
    assert to_install("plot") == "in a clone of agar, run `make env` or `python -m pip install -e '.[plot]'`"
