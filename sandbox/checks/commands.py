"""`exec`: words, input, environment, directory, user, results, errors, the audit line."""

import json
import logging

from agar.errors import ConfigError, SandboxError
from agar.sandbox.base import Sandbox
from agar.sandbox.checks.check import Check, expect, expect_raises, expect_that, lines


async def runs_a_string_with_the_shell(sandbox: Sandbox) -> None:
    """`exec` of a string."""
    result = await sandbox.exec("echo one; echo two")
    expect("stdout", result.stdout, "one\ntwo\n")
    expect("code", result.code, 0)
    expect("killed_by", result.killed_by, None)
    expect("truncated", result.truncated, False)


async def runs_a_sequence_as_it_stands(sandbox: Sandbox) -> None:
    """`exec` of a sequence: no word is interpreted."""
    expect("stdout", (await sandbox.exec(["echo", "$HOME; a  b"])).stdout, "$HOME; a  b\n")


async def reports_failure_as_data(sandbox: Sandbox) -> None:
    """Exit codes, missing commands, missing files, impossible words."""
    expect("code of exit 3", (await sandbox.exec("exit 3")).code, 3)
    expect("code of a missing command", (await sandbox.exec(["no-such-command"])).code, 127)
    missing = await sandbox.exec("cat nothing")
    expect("code of cat", missing.code, 1)
    expect("stderr names the file", "nothing" in missing.stderr, True)
    expect("code of a NUL byte", (await sandbox.exec("echo a\0b")).code, 126)
    expect("code of a huge word", (await sandbox.exec("echo " + "x" * 200_000)).code, 126)
    expect("code of a lone surrogate", (await sandbox.exec("echo \ud800")).code, 0)


async def reports_signals_and_strange_bytes(sandbox: Sandbox) -> None:
    """A command killed by a signal, a directory that is not there, output that is no UTF-8."""
    expect("code after SIGSEGV", (await sandbox.exec("kill -SEGV $$")).code, 139)
    expect("code in no directory", (await sandbox.exec("true", cwd="nowhere")).code, 126)
    result = await sandbox.exec(r"printf 'a\377\376b\0c'; printf '\377' >&2")
    expect("stdout", result.stdout, "a��b\0c")
    expect("stderr", result.stderr, "�")


async def refuses_impossible_arguments(sandbox: Sandbox) -> None:
    """What only a programmer can get wrong is an exception."""
    await expect_raises(ConfigError, "an empty command", sandbox.exec([]))
    await expect_raises(ConfigError, "a deadline of 0", sandbox.exec("true", timeout_s=0.0))
    await expect_raises(ConfigError, "a variable with =", sandbox.exec("true", env={"A=B": "1"}))


async def starts_in_the_workspace(sandbox: Sandbox) -> None:
    """The default directory, and `cwd`."""
    await sandbox.write("sub/f", "x")
    expect("pwd", (await sandbox.exec("pwd")).stdout, "/work\n")
    expect("pwd in cwd", (await sandbox.exec("pwd", cwd="sub")).stdout, "/work/sub\n")


async def feeds_stdin(sandbox: Sandbox) -> None:
    """`stdin`, and its default."""
    expect("stdout", (await sandbox.exec("cat", stdin="line\n")).stdout, "line\n")
    expect("stdout without stdin", (await sandbox.exec("cat")).stdout, "")


async def feeds_a_lot_of_stdin(sandbox: Sandbox) -> None:
    """More than a pipe holds, to a command that reads it, and to one that does not."""
    text = "0123456789abcde\n" * 20_000
    expect("stdout", (await sandbox.exec("cat", stdin=text)).stdout == text, True)
    expect("code of one that does not read", (await sandbox.exec("exit 4", stdin=text)).code, 4)


async def sets_the_environment(sandbox: Sandbox) -> None:
    """`SandboxSpec.env`, `exec(env=...)`, and which wins."""
    command = 'echo "$CHECK_ONE $CHECK_TWO $CHECK_THREE" $HOME'
    result = await sandbox.exec(command, env={"CHECK_TWO": "two=2; $HOME", "CHECK_THREE": ""})
    expect("stdout", result.stdout, "of the spec two=2; $HOME  /work\n")
    expect("without env", (await sandbox.exec(command)).stdout, "of the spec of the spec  /work\n")


async def runs_as_the_user_of_its_spec(sandbox: Sandbox) -> None:
    """`SandboxSpec.user`: never root, and the owner of what it writes."""
    result = await sandbox.exec("touch mine; id -u; id -g; stat -c '%u %g' mine")
    expect("user, group, owner", lines(result), ["1234", "1234", "1234 1234"])
    await sandbox.write("given", "x")
    expect(
        "changing a written file",
        (await sandbox.exec("echo y >> given && chmod 600 given && cat given")).stdout,
        "xy\n",
    )


async def closes_for_good(sandbox: Sandbox) -> None:
    """`close` twice, and use after it."""
    await sandbox.write("f", "x")
    await sandbox.close()
    await sandbox.close()
    await expect_raises(SandboxError, "exec after close", sandbox.exec("true"))
    await expect_raises(SandboxError, "read after close", sandbox.read("f"))
    await expect_raises(SandboxError, "snapshot after close", sandbox.snapshot())


async def writes_an_audit_line(sandbox: Sandbox) -> None:
    """One line of JSON per command, with what ran and how it ended, without secrets."""
    written: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("agar.sandbox.audit")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        await sandbox.exec("exit 5", env={"TOKEN": "secret-4711"}, stdin="secret-4712")
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    found = [line for line in map(json.loads, written) if line["words"][-1] == "exit 5"]
    expect_that("one line for one command", len({line["sandbox"] for line in found}) == len(found) > 0, written)
    expect("code and error", (found[0]["code"], found[0]["error"]), (5, None))
    expect_that("names of variables", "TOKEN" in found[0]["env"], found[0])
    expect_that("no secrets", "secret-471" not in str(written), written)


COMMANDS = (
    *(
        Check(run=run, real=False)
        for run in (
            runs_a_string_with_the_shell,
            runs_a_sequence_as_it_stands,
            reports_failure_as_data,
            refuses_impossible_arguments,
            starts_in_the_workspace,
            feeds_stdin,
            closes_for_good,
            writes_an_audit_line,
        )
    ),
    Check(run=reports_signals_and_strange_bytes),
    Check(run=feeds_a_lot_of_stdin),
    Check(run=sets_the_environment, changes={"env": {"CHECK_ONE": "of the spec", "CHECK_TWO": "of the spec"}}),
    Check(run=runs_as_the_user_of_its_spec, changes={"user": 1234}),
)
"""Checks of single commands."""
