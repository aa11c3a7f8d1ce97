"""Codex CLI and Claude Code, unmodified, each in a sandbox whose only way out is the gateway; no account, no network.

`make verify` runs this file; it is too large for every change: npm downloads their binaries (800 MB), which are kept
beside the other cached environments.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.agents.harness.clients.conftest import ROOT, call

from agar.agents.config import HarnessConfig
from agar.sandbox import SandboxSpec
from agar.types import Message

pytestmark = pytest.mark.timeout(1200)

PINS = ROOT / "requirements" / "npm"
CODEX = [call("exec_command", "Let me look.", cmd="cat 47"), call("exec_command", cmd="cat 12"), "gold 29"]
CLAUDE = [
    call("Bash", "Let me look.", command="cat 47", description="look"),
    call("Bash", command="cat 12", description="look"),
    "gold 29",
]
CONFIG = """
model = "{model}"
model_provider = "agar"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.agar]
name = "agar"
base_url = "{base_url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
QUIET = {
    "ANTHROPIC_MODEL": "{model}",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
}


@pytest.fixture(scope="session")
def modules() -> Path:
    """The folder of the packages in `requirements/npm`, by exact version and checksum; no script of theirs is run."""
    if platform.machine() != "x86_64":
        pytest.skip(f"the binaries pinned here are for x86_64, this is {platform.machine()}")
    npm = shutil.which("npm")
    assert npm is not None, "npm is missing: install it (on Debian: apt-get install npm)"
    key = hashlib.sha256((PINS / "package-lock.json").read_bytes()).hexdigest()[:12]
    folder = Path(os.environ.get("AGAR_CACHE") or Path.home() / ".cache" / "agar") / f"npm-{key}"
    if not (folder / "built").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(PINS, folder)
        ci = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        answer = subprocess.run(ci, cwd=folder, capture_output=True, text=True, timeout=1000)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        (folder / "built").touch()
    return folder / "node_modules"


def sandboxed(folder: Path, *command: str, **fields) -> HarnessConfig:
    spec = SandboxSpec(memory_mib=3072, pids=256, disk_mib=256, mounts={"/opt/program": folder})
    return HarnessConfig(command=command, sandbox=spec, timeout_s=240.0, **fields)


async def test_codex_plays_and_its_episode_is_one_exact_row(hunt, modules):
    folder = modules / "@openai" / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl"
    config = sandboxed(
        folder,
        *("/opt/program/bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        *("--disable", "plugins", "--disable", "apps", "--disable", "remote_plugin"),
        *("-o", "answer.txt", "{prompt}"),
        files={".codex/config.toml": CONFIG},
        answer_file="answer.txt",
    )
    trace, samples = await hunt(config, CODEX)
    assert [node.parent for node in trace.nodes] == [None, 0, 1]
    assert trace.divergences == ()
    assert len(samples) == 1


@pytest.mark.parametrize("small", [("--bare", "--tools", "Bash", "--system-prompt", "You are an agent."), ()])
async def test_claude_code_plays_and_its_episode_is_one_exact_row(hunt, modules, small):
    config = sandboxed(
        modules / "@anthropic-ai" / "claude-code-linux-x64",
        *("/opt/program/claude", *small, "--dangerously-skip-permissions", "-p", "{prompt}"),
        env=QUIET,
    )
    trace, samples = await hunt(config, CLAUDE)
    assert [node.parent for node in trace.nodes] == [None, 0, 1]
    assert trace.divergences == ()
    assert len(samples) == 1


class Delegating:
    """Has a sub-agent look, and says what it says."""

    def __init__(self, family) -> None:
        self.family, self.calls = family, 0

    def __call__(self, prompt):
        self.calls += 1
        text = self.family.tokenizer.decode(prompt)
        if "SUBTASK" not in text:
            task = {"description": "SUBTASK look", "prompt": "SUBTASK: say what is in 12", "run_in_background": False}
            reply = call("Agent", "I delegate.", subagent_type="general-purpose", **task)
        elif '"name":"Agent","arguments"' in text or "<tool_response>" in text:
            reply = Message(role="assistant", content="gold 29")
        else:
            reply = call("Bash", command="cat 12", description="look")
        ids, mask = self.family.transcript([reply])
        return ids[mask]


async def test_a_sub_agent_of_claude_code_is_a_row_of_its_own(hunt, modules, family):
    folder = modules / "@anthropic-ai" / "claude-code-linux-x64"
    config = sandboxed(folder, "/opt/program/claude", "--dangerously-skip-permissions", "-p", "{prompt}", env=QUIET)
    trace, samples = await hunt(config, Delegating(family))
    assert [node.parent for node in trace.nodes] == [None, None, 1, 0]
    assert trace.divergences == ()
    assert len(samples) == 2
