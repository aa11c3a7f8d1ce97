"""What is an error of the programmer, and what an answer to the model."""

import shutil
import subprocess

import pytest
from pydantic import ValidationError

from agar.errors import ConfigError
from agar.sandbox import SandboxSpec
from agar.sandbox.command import Command


def command(words="true", *, cwd=None, env=None, stdin=None, timeout_s=None, spec=None):
    return Command.of(words, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s, spec=spec or SandboxSpec())


@pytest.mark.parametrize("wrong", [{"words": []}, {"timeout_s": 0}, {"timeout_s": float("nan")}, {"env": {"A=B": ""}}])
def test_the_programmers_mistakes_raise(wrong):
    with pytest.raises(ConfigError):
        command(**wrong)


@pytest.mark.parametrize("words", ["a\0b", "x" * 200_000, ["x" * 90_000] * 20])
def test_what_a_model_may_write_is_refused_in_words(words):
    assert command(words).refusal


def test_a_directory_with_a_nul_is_refused_in_words():
    assert command(cwd="a\0").refusal
    assert command().refusal is None


def test_the_environment_is_layered_and_nothing_is_inherited(monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    env = command(env={"B": "call"}, spec=SandboxSpec(env={"A": "spec", "B": "spec"})).env
    assert set(env) == {"PATH", "HOME", "LANG", "A", "B"}
    assert (env["A"], env["B"]) == ("spec", "call")


def test_a_spec_with_an_impossible_variable_names_it():
    with pytest.raises(ValidationError, match="'A=B' needs a name without"):
        SandboxSpec(env={"A=B": "x"})


@pytest.mark.parametrize("network", ["host", "internet", True])
def test_a_network_that_is_not_there_is_refused(network):
    with pytest.raises(ValidationError, match="network"):
        SandboxSpec(network=network)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_wrapper_works_in_both_shells(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine: its option letter for the process limit stays untested")
    argv = command(["sh", "-c", "ulimit -a; pwd; ls /proc/self/fd | grep -c 9"], cwd=str(tmp_path)).argv(processes=4321)
    launch = ["sh", "-c", 'exec 9>mark; shell=$1; shift 2; exec "$shell" "$@"', "sh", shell]
    result = subprocess.run([*launch, *argv], capture_output=True, text=True, cwd=tmp_path)
    assert (tmp_path / "mark").read_text() == "started\n"
    assert result.stdout.splitlines()[-2:] == [str(tmp_path), "0"]
    assert "4321" in result.stdout
