"""Artifacts: what an agent may bring, and what it may not, whatever it planted."""

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.artifacts import Artifacts, matches
from agar.errors import ConfigError, ToolError
from agar.sandbox import SandboxSpec, create
from agar.sandbox.fake import FakeSandbox

BEFORE = {"a.py": b"1\n", "pkg/b.py": b"2\n", "tests/test_a.py": b"t\n", "README": b"r\n"}
MINE = ("**/*.py", "!tests/**", "!**/conftest.py")


@pytest.mark.parametrize(
    ("path", "patterns", "named"),
    [
        ("a.py", ["*.py"], True),
        ("pkg/a.py", ["*.py"], False),
        ("pkg/a.py", ["**/*.py"], True),
        ("a.py", ["**/*.py"], True),
        ("p/q/r/a.py", ["p/**/a.py"], True),
        ("p/a.py", ["p/**/a.py"], True),
        ("pa.py", ["p/**/a.py"], False),
        ("tests/deep/x", ["tests/**"], True),
        ("a.py", ["?.py"], True),
        ("ab.py", ["?.py"], False),
        ("axpy", ["*.py"], False),
        ("line\nbreak.py", ["*.py"], True),
        ("conftest.py", MINE, False),
        ("pkg/conftest.py", MINE, False),
        ("tests/test_a.py", MINE, False),
        ("pkg/tests/a.py", MINE, True),
        ("README", MINE, False),
        ("a.py", ["!b.py"], False),
    ],
)
def test_patterns_name_paths(path, patterns, named):
    assert matches(path, patterns) is named


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../*", "a/../b", "!/etc"])
def test_patterns_that_lead_out_are_refused(pattern):
    with pytest.raises(ConfigError, match="must be a relative pattern"):
        matches("a", [pattern])


def test_what_may_not_be_brought_stays_as_it_was():
    left = {"a.py": b"better\n", "new.py": b"n\n", "tests/test_a.py": b"pass\n", "conftest.py": b"cheat\n"}
    artifacts = Artifacts(files=left, patterns=MINE)
    assert artifacts.over(BEFORE) == {
        "a.py": b"better\n",
        "new.py": b"n\n",
        "tests/test_a.py": b"t\n",
        "README": b"r\n",
    }
    assert artifacts.changes(BEFORE) == ("a.py", "new.py", "pkg/b.py")


def test_nothing_changed_is_no_change():
    assert Artifacts(files=BEFORE).changes(BEFORE) == ()
    assert Artifacts(files=BEFORE).diff(BEFORE) == ""


def test_the_diff_is_one_that_git_applies(tmp_path):
    before = {"a.py": b"one\ntwo\nthree\n", "gone": b"x\n", "end": b"no newline"}
    artifacts = Artifacts(files={"a.py": b"one\n2\nthree\n", "new/b": b"b\n", "end": b"no newline, changed"})
    for path, data in before.items():
        (tmp_path / path).write_bytes(data)
    subprocess.run(["git", "apply"], input=artifacts.diff(before).encode(), cwd=tmp_path, check=True, timeout=30)
    left = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert left == artifacts.over(before)


def test_what_is_no_text_or_large_is_only_named():
    artifacts = Artifacts(files={"a.bin": b"\xff\x00", "big": b"x\n" * 40_000})
    assert artifacts.diff({}) == "a.bin differs (2 bytes)\nbig differs (80000 bytes)\n"


async def test_files_are_carried_from_one_sandbox_to_the_next():
    agents, graders = FakeSandbox(SandboxSpec(backend="fake")), FakeSandbox(SandboxSpec(backend="fake"))
    for path, data in {**BEFORE, "a.py": b"better\n", "tests/test_a.py": b"pass\n"}.items():
        await agents.write(path, data)
    artifacts = await Artifacts.collect(agents, MINE)
    assert dict(artifacts.files) == {"a.py": b"better\n", "pkg/b.py": b"2\n"}
    assert artifacts.skipped == {"not asked for": 2}
    await artifacts.lay_out(graders, original=BEFORE)
    assert await graders.read("a.py") == b"better\n"
    assert await graders.read("tests/test_a.py") == b"t\n"


async def test_more_than_the_limit_is_refused():
    agents = FakeSandbox(SandboxSpec(backend="fake"))
    await agents.write("a.py", b"x" * 1000)
    with pytest.raises(ToolError, match="more than 999 bytes"):
        await Artifacts.collect(agents, ["*.py"], limit_bytes=999)
    assert len((await Artifacts.collect(agents, ["*.py"], limit_bytes=1000)).files) == 1


@pytest.mark.sandbox
async def test_links_and_special_files_are_never_followed_and_never_taken(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("host")
    async with create(SandboxSpec()) as agents:
        await agents.write("a.py", "1")
        plant = f"ln -s {secret} b.py; ln -s / root; mkfifo c.py; ln a.py d.py; printf 1 > \"$(printf 'e\\377.py')\""
        assert (await agents.exec(plant)).code == 0
        artifacts = await Artifacts.collect(agents, ["**/*.py"])
    assert dict(artifacts.files) == {"a.py": b"1", "d.py": b"1", os.fsdecode(b"e\xff.py"): b"1"}
    assert artifacts.skipped == {"symlink": 2, "special": 1}
    async with create(SandboxSpec()) as fresh:
        again = Artifacts.from_text(artifacts.to_text(), ["**/*.py"])
        assert again is not None
        await again.lay_out(fresh, original={})
        assert (await fresh.exec("ls | wc -l")).stdout.strip() == "3"


@given(st.dictionaries(st.from_regex(r"[a-z]+(/[a-z]+)?", fullmatch=True), st.binary(max_size=20), max_size=5))
def test_a_text_holds_them_exactly(files):
    found = Artifacts.from_text(Artifacts(files=files).to_text(), ["**/*"])
    assert found is not None
    assert found.files == files


@pytest.mark.parametrize(
    "text",
    [
        "",
        "done",
        '{"artifacts": 3}',
        '{"artifacts": {"a": "not base64!"}}',
        '{"artifacts": ["a"]}',
        '{"artifacts": {"a": 1}}',
        '{"artifacts":' + "[" * 100_000,
        '{"artifacts": {}} and more',
    ],
)
def test_another_text_holds_none(text):
    assert Artifacts.from_text(text, ["**/*"]) is None


def test_paths_that_lead_out_or_may_not_be_brought_are_left_out_of_a_text():
    files = {
        "../x.py": b"",
        "/etc/x.py": b"",
        "a//b.py": b"",
        "./a.py": b"",
        "a\0.py": b"",
        "conftest.py": b"",
        "ok.py": b"",
    }
    found = Artifacts.from_text(Artifacts(files=files).to_text(), MINE)
    assert found is not None
    assert (list(found.files), found.skipped) == (["ok.py"], {"not asked for": 6})
