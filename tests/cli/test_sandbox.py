"""`agar sandbox`: what is checked, what is refused, a server that is up and stops."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from agar.cli.main import main
from agar.sandbox import SandboxSpec, create


def test_the_conformance_kit_runs_from_the_command_line(capsys):
    assert main(["sandbox", "check", "--spec.backend", "fake"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "held     runs_a_string_with_the_shell" in said
    assert all(line.startswith("held") for line in said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "can be reached by others: set AGAR_SANDBOX_TOKEN"),
        (["--spec.network", "gateway"], "cannot be served"),
        (["--spec.memory", "3"], "memory_mib"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_remedy(words, said, capsys, monkeypatch):
    monkeypatch.delenv("AGAR_SANDBOX_TOKEN", raising=False)
    assert main(["sandbox", "serve", *words]) == 2
    assert said in capsys.readouterr().err


async def ask(url: str) -> str:
    async with create(SandboxSpec(backend="remote", server=url)) as sandbox:
        return (await sandbox.exec("echo there")).stdout


@pytest.mark.slow
def test_a_server_says_where_it_is_and_stops_at_an_interrupt():
    words = [sys.executable, "-m", "agar.cli.main", "sandbox", "serve", "--port", "0", "--spec.backend", "fake"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        said = process.stdout.readline()
        assert said.startswith("fake sandboxes on http://127.0.0.1:")
        url = said.split(" on ")[1].split(";")[0]
        assert asyncio.run(ask(url)) == "there\n"
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
        assert (process.returncode, complaint) == (0, "stopped\n")
