"""`agar tools`: what is listed, what is refused, a server that is up and stops."""

import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from agar.cli.main import main
from agar.tool_servers.mcp_tools import McpTools


def test_the_known_servers_are_listed(capsys):
    assert main(["tools", "list"]) == 0
    assert "python        agar.tool_servers.python:Python" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "no tool server 'nothing'"),
        (["python", "--kernel.cell_timeout", "3"], "cell_timeout_s"),
        (["python", "--server.host", "0.0.0.0"], "can be reached by others: set AGAR_TOOLS_TOKEN"),
        (["python", "--config", "no-such.toml"], "cannot read"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_remedy(words, said, capsys, monkeypatch):
    monkeypatch.delenv("AGAR_TOOLS_TOKEN", raising=False)
    assert main(["tools", "serve", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_server_says_where_it_is_and_stops_at_an_interrupt(tmp_path):
    (tmp_path / "python.toml").write_text("sessions = 3\n[server]\nport = 0\n")
    words = [
        sys.executable,
        "-m",
        "agar.cli.main",
        "tools",
        "serve",
        "python",
        "--config",
        str(tmp_path / "python.toml"),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        said = process.stdout.readline()
        assert said.startswith("python serves python on http://127.0.0.1:")
        url = said.split(" on ")[1].split(";")[0]
        with urllib.request.urlopen(f"{url}/health", timeout=20) as answer:
            assert answer.read() == b'{"status":"ok","service":"Python"}'
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
        assert (process.returncode, complaint) == (0, "stopped\n")


@pytest.mark.slow
@pytest.mark.sandbox
async def test_a_server_speaks_mcp_over_standard_input_and_output():
    pytest.importorskip("mcp")
    words = [sys.executable, "-m", "agar.cli.main", "tools", "mcp", "python", "--kernel.cell_timeout_s", "20"]
    async with McpTools(words).session() as tools:
        assert await tools.call("python", {"code": "x = 3"}, timeout_s=30) == "(no output)"
        assert await tools.call("python", {"code": "x * 14"}, timeout_s=30) == "42"
