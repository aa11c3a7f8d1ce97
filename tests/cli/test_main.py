"""The command line: exit codes, clean errors, nothing imported that the command does not need."""

import argparse
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest

from agar.cli import commands, main
from agar.cli.commands import COMMANDS, Command
from agar.errors import AgarError, ConfigError, EngineError


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A command `probe` whose `run` does what the test puts into `work`."""
    module = SimpleNamespace(work=lambda options: 0, seen=None)

    def add_parser(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("recipe")
        parser.add_argument("--resume")

    def run(options: argparse.Namespace) -> int:
        module.seen = options
        return int(module.work(options))

    module.add_parser, module.run = add_parser, run
    monkeypatch.setitem(sys.modules, "agar_probe_command", module)
    table = {"probe": Command(module="agar_probe_command", help="probe", overrides=True), **COMMANDS}
    monkeypatch.setattr(main, "COMMANDS", table)
    return module


def raising(error: BaseException):
    def work(options: argparse.Namespace) -> int:
        raise error

    return work


def test_help_names_every_command_without_importing_any() -> None:
    code = (
        "import sys\n"
        "from agar.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'gymnasium', 'pydantic', 'rich', 'torch', 'ray'} & set(sys.modules)\n"
        "heavy |= {m for m in sys.modules if m.startswith('agar.cli.')} - {'agar.cli.main', 'agar.cli.commands'}\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)\n"
    )
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30)
    assert answer.returncode == 0, answer.stderr
    for name in COMMANDS:
        assert name in answer.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_can_be_loaded_and_gives_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main([name, "--help"])
    assert caught.value.code == 0
    assert f"usage: agar {name}" in capsys.readouterr().out


def test_dotted_settings_reach_the_command_in_order(probe: SimpleNamespace) -> None:
    words = ["probe", "r.toml", "--a.b", "-1e-6", "c.d=2", "--e", "--resume", "run", "--f=[1, 2]"]
    assert main.main(words) == 0
    assert probe.seen.overrides == ["--a.b", "-1e-6", "c.d=2", "--e", "--f=[1, 2]"]
    assert (probe.seen.recipe, probe.seen.resume) == ("r.toml", "run")


def test_a_command_without_settings_refuses_stray_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor", "--trainer.lr", "1"])
    assert caught.value.code == 2
    assert "unrecognized arguments: --trainer.lr 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("rollout.group_size is 1: set it to 2"), 2),
        (EngineError("the engine died: see its log"), 1),
        (KeyboardInterrupt(), 130),
        (ExceptionGroup("tasks", [EngineError("the engine died: see its log")]), 1),
        (ExceptionGroup("tasks", [ConfigError("one"), ExceptionGroup("more", [ConfigError("two")])]), 2),
    ],
)
def test_our_errors_are_a_line_and_an_exit_code(
    probe: SimpleNamespace, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    probe.work = raising(error)
    assert main.main(["probe", "r.toml"]) == code
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    if isinstance(error, AgarError):
        assert shown == f"error: {error}\n"


def test_debug_shows_the_traceback(probe: SimpleNamespace) -> None:
    probe.work = raising(ConfigError("no"))
    with pytest.raises(ConfigError):
        main.main(["--debug", "probe", "r.toml"])


def test_a_bug_is_not_dressed_up(probe: SimpleNamespace) -> None:
    probe.work = raising(ZeroDivisionError("bug"))
    with pytest.raises(ZeroDivisionError):
        main.main(["probe", "r.toml"])
    probe.work = raising(ExceptionGroup("tasks", [ConfigError("no"), ZeroDivisionError("bug")]))
    with pytest.raises(ExceptionGroup):
        main.main(["probe", "r.toml"])


def test_commands_say_what_they_are_for() -> None:
    assert all(command.help and command.module.startswith("agar.cli.") for command in commands.COMMANDS.values())


@pytest.mark.parametrize(("flag", "ours"), [((), False), (("-v",), True), (("--debug",), True)])
def test_verbose_is_about_agar_and_debug_about_everything(
    probe: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, flag: tuple[str, ...], ours: bool
) -> None:
    agar, root, library = logging.getLogger("agar"), logging.getLogger(), logging.getLogger("some_library")
    monkeypatch.setattr(root, "handlers", [])  # basicConfig does nothing where the test runner was first
    before = (agar.level, root.level)
    try:
        assert main.main([*flag, "probe", "r.toml"]) == 0
        found = (logging.getLogger("agar.rollout").isEnabledFor(logging.INFO), library.isEnabledFor(logging.INFO))
    finally:
        agar.setLevel(before[0])
        root.setLevel(before[1])
    assert found == (ours, flag == ("--debug",))
