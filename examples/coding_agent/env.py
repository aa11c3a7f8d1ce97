"""Repair-v0: find the mistake in a repository and mend it; what is left is judged where the agent has never been.

A task is a folder in Harbor's format (`payload["folder"]`), or one that `generate.py` makes from a seed. Where its
tests are calls with their results (`tests/cases.json`), those are compared outside of the sandbox, and no code of the
agent's can touch the verdict. Any other `tests/test.sh` runs in the judge's sandbox and writes its reward there, where
code written to deceive can too: such tasks are refused until `scripts` allows them.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agar.envs.artifacts import Artifacts
from agar.envs.base import StepResult, task_of
from agar.envs.registry import register
from agar.envs.spaces import Observation
from agar.envs.tasks.harbor import HarborTask
from agar.envs.tool_env import ToolEnv, tool
from agar.errors import ConfigError, EnvError, ToolError
from agar.examples.coding_agent import generate, verify
from agar.types import Message, Reward, TaskRow, ToolCall, Turn

if TYPE_CHECKING:
    from agar.sandbox.base import ExecResult, Sandbox
    from agar.sandbox.config import SandboxSpec

PROTECTED = (
    *("tests/**", "test/**", "**/test_*.py", "**/*_test.py"),
    *("**/conftest.py", "**/sitecustomize.py", "**/usercustomize.py", "**/*.pth"),
    *("**/pytest.ini", "**/.pytest.ini", "**/tox.ini", "**/setup.cfg", "**/pyproject.toml", "**/__pycache__/**"),
)
"""What an agent may not bring before its judge: tests, and what test runners and interpreters obey."""

_PYTHON = ("python3", "-I", "-S")  # neither variables, nor the working folder, nor site packages have a say
_REWARD = "/tmp/logs/verifier/reward.txt"
_COULD_NOT_RUN = (126, 127)


class Repair(ToolEnv):
    """A repository with a mistake in it; reward 1 if all of its hidden tests pass."""

    collects = ("**/*", *(f"!{pattern}" for pattern in PROTECTED))
    tool_timeout_s = 90.0
    command_timeout_s = 60.0
    """How long one command may run; then it is killed and the agent is told."""
    output_chars = 8_000
    """The longest tool answer; the middle of a longer one is cut out."""
    system = "You mend repositories. Your working folder holds one."
    """What the agent is told first."""
    level: generate.Level = "full"
    """The level of the task that is played where nobody names one."""

    _shelf: "tempfile.TemporaryDirectory[str] | None" = None

    def __init__(
        self,
        *,
        sandbox: "SandboxSpec | Mapping[str, Any] | None" = None,
        judged: bool = True,
        scripts: bool = False,
    ) -> None:
        """Make the environment.

        Args:
            sandbox: what the agent and the judge get one of each; default the default `SandboxSpec`.
            judged: False ends every episode with the reward 0, unjudged: for demonstrations, of which only the
                transcript counts.
            scripts: whether tasks are played whose judge is a script of their own. It runs beside the agent's code,
                which can forge its verdict.
        """
        super().__init__(sandbox={} if sandbox is None else sandbox)
        self._judged, self._scripts = judged, scripts

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Take the task of `options`, or draw one of the train split."""
        await self._clear_shelf()  # an episode that failed may have left it
        await super().areset(seed=seed, options=options)
        row = task_of(options)
        if row is None:
            index = int(self.np_random.integers(generate.SIZES["train"]))
            row = generate.tasks("train", level=self.level)[index]
        self.task = await asyncio.to_thread(_task_of, row)
        if self._judged and not self._scripts and verify.CASES not in self.task.tests:
            raise ConfigError(
                f"task {self.task.name} has no tests/{verify.CASES}, so its test.sh would judge in the sandbox where "
                "the agent's code runs, and code written to deceive can forge what it says: give it cases, or accept "
                "that with kwargs = { scripts = true }"
            )
        self._turns = 0
        messages = [Message(role="system", content=self.system), Message(role="user", content=self.task.instruction)]
        return messages, {"files": _texts(self.task.repository), "collects": self.collects}

    async def setup(self, sb: "Sandbox") -> None:
        """Lay the repository out."""
        await Artifacts(files={}, patterns=()).lay_out(sb, original=self.task.repository)

    @tool
    async def bash(self, command: str) -> str:
        """Run a shell command in the repository."""
        if "\0" in command:
            raise ToolError("a command cannot hold a NUL character")
        return self._told(await self.sb.exec(command, timeout_s=self.command_timeout_s))

    @tool
    async def search(self, text: str) -> str:
        """Find the lines that hold a text."""
        found = await Artifacts.collect(self.sb, ("**/*",))
        lines = await asyncio.to_thread(lambda: list(_lines_with(text, found.files)))
        return self._cut("\n".join(lines)) if lines else "nothing"

    @tool
    async def read(self, path: str) -> str:
        """Read a file."""
        return self._cut((await self.sb.read(path)).decode("utf-8", "replace"))

    @tool
    async def edit(self, path: str, old: str, new: str) -> str:
        """Replace the one place of a file that holds old."""
        try:
            text = (await self.sb.read(path)).decode()
        except UnicodeDecodeError as error:
            raise ToolError(f"{path} is no text: change it with a command") from error
        if (count := text.count(old) if old else 0) != 1:
            raise ToolError(f"old must stand in {path} exactly once, it is there {count} times")
        await self.sb.write(path, text.replace(old, new))
        return "done"

    async def answer(self, action: Turn) -> StepResult:
        """Judge what is left, once the agent has no more to do."""
        return await super().answer(action) if self._judged else ([], 0.0, True, False, {})

    async def astep(self, action: Turn) -> StepResult:
        """Count the turns, for `gold`."""
        self._turns += 1
        return await super().astep(action)

    async def grade(self, fresh: "Sandbox", artifacts: Artifacts) -> Reward:
        """1 if every hidden test passes over what the agent left; who has changed nothing has mended nothing."""
        solved = bool(artifacts.changes(self.task.repository))
        if solved:
            await artifacts.lay_out(fresh, original=self.task.repository)
            cases = verify.CASES in self.task.tests
            solved = await (self._calls_are_right(fresh) if cases else self._script_pays(fresh))
        return Reward(total=float(solved), parts={"tests": float(solved)})

    def make_grading_sandbox(self) -> "AbstractAsyncContextManager[Sandbox]":
        """A sandbox like the agent's, which sees the tests too, where they run inside."""
        assert self.sandbox is not None, "the constructor has set it"
        if verify.CASES in self.task.tests:
            return self.sandbox_of(self.sandbox)
        from agar.sandbox.factory import create

        if self._shelf is None:
            self._shelf = tempfile.TemporaryDirectory(prefix="agar-tests-")
            _fill(Path(self._shelf.name), self.task.tests)
        mounts = {**self.sandbox.mounts, "/tests": Path(self._shelf.name)}
        return create(self.sandbox.model_copy(update={"mounts": mounts}))  # no other task sees these tests

    async def arelease(self) -> None:
        """Let go of the agent's sandbox, and of what the judge's was shown."""
        await super().arelease()
        await self._clear_shelf()

    async def _clear_shelf(self) -> None:
        if self._shelf is not None:
            shelf, self._shelf = self._shelf, None
            await asyncio.to_thread(shelf.cleanup)

    def gold(self) -> Turn:
        """The next step of a careful agent; in a task that says no more, its own solution and then the end."""
        steps = list(self._gold())
        return steps[min(self._turns, len(steps) - 1)]

    def _gold(self) -> Iterator[Turn]:
        known = self.task.metadata
        if not {"function", "path", "wrong", "right"} <= set(known):
            script = self.task.solution.get("solve.sh", b"").decode("utf-8", "replace")
            yield call(0, "bash", command=script)
        else:
            yield call(0, "search", text=f"def {known['function']}(")
            yield call(1, "read", path=known["path"])
            yield call(2, "edit", path=known["path"], old=known["wrong"], new=known["right"])
        yield Turn(text="done")

    async def _calls_are_right(self, fresh: "Sandbox") -> bool:
        cases = json.loads(self.task.tests[verify.CASES])
        done = await fresh.exec(
            [*_PYTHON, "-c", verify.SUBJECT], stdin=verify.questions(cases), timeout_s=self.task.verifier_timeout_s
        )
        if done.code in _COULD_NOT_RUN:  # or the code ends as if; it can close /work, but not /
            nothing = await fresh.exec([*_PYTHON, "-c", ""], cwd="/", timeout_s=self.task.verifier_timeout_s)
            if nothing.code in _COULD_NOT_RUN:
                raise EnvError("the judge's sandbox has no python3 for the hidden calls: give it one below /usr")
        return not done.truncated and verify.judge(cases, done.stdout) == len(cases)

    async def _script_pays(self, fresh: "Sandbox") -> bool:
        done, reward = await self._script(fresh)
        if reward is None or done.code in _COULD_NOT_RUN:
            async with self.make_grading_sandbox() as untouched:  # to tell a judge that fails from code that ends it
                await self.setup(untouched)
                ran, wrote = await self._script(untouched)
            if wrote is None:
                raise EnvError(
                    f"task {self.task.name}: tests/test.sh leaves no reward, not over the untouched repository either "
                    f"(exit {ran.code}, {(ran.stderr or ran.stdout).strip()[-200:]!r}): it must write one for failures "
                    "too, by what the sandbox has"
                )
        return done.code == 0 and done.killed_by is None and reward is not None and reward >= 1.0

    async def _script(self, sb: "Sandbox") -> "tuple[ExecResult, float | None]":
        """How the task's script ended, and its reward: None where it left none, 0 for what is no number."""
        start = "mkdir -p /tmp/logs/verifier /tmp/logs/agent; exec /tests/test.sh"
        done = await sb.exec(start, timeout_s=self.task.verifier_timeout_s)
        try:
            return done, float(await sb.read(_REWARD))
        except ToolError:
            return done, None
        except ValueError:
            return done, 0.0

    def _told(self, result: "ExecResult") -> str:
        text = self._cut(result.stdout + result.stderr)
        if result.killed_by is not None:
            return f"{text}\nkilled ({result.killed_by})".lstrip()
        return f"{text}\nexit {result.code}".lstrip() if result.code or not text else text

    def _cut(self, text: str) -> str:
        half = self.output_chars // 2
        left = len(text) - 2 * half
        return text if left <= 0 else f"{text[:half]}\n... {left} characters left out ...\n{text[-half:]}"


class SmallRepair(Repair):
    """The same for a policy of half a million parameters: short texts, and no tools but search, read and edit."""

    system = "Fix the bug."
    output_chars = 400
    level = "small"
    bash = None  # type: ignore[assignment]  # takes the tool away


def call(number: int, name: str, /, **arguments: str) -> Turn:
    """The turn that calls a tool; `number` counts the calls of the episode."""
    return Turn(tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=arguments),))


def _task_of(row: TaskRow) -> HarborTask:
    match row.payload:
        case {"folder": str(folder)}:
            task = HarborTask.read(Path(folder)).moved()
            if task.unbuilt:
                raise ConfigError(
                    f"task {folder} needs a container built by {list(task.unbuilt)}: only files can be copied into a "
                    "sandbox; leave the task out, or write its Dockerfile with COPY alone"
                )
            return task
        case {"level": ("small" | "full") as level, "split": str(split), "index": int(index)}:
            return generate.task(level, split, index)
    raise ConfigError(
        f"a task of Repair-v0 needs a folder, or level, split and index, got {dict(row.payload)}: take one of its own"
    )


def _texts(files: Mapping[str, bytes]) -> dict[str, str | bytes]:
    """Files as texts where they are texts: an info with nothing else in it can be written as JSON."""
    found: dict[str, str | bytes] = {}
    for path, data in files.items():
        try:
            found[path] = data.decode()
        except UnicodeDecodeError:
            found[path] = data
    return found


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files that everybody may read."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o755)


def _lines_with(text: str, files: Mapping[str, bytes]) -> Iterator[str]:
    for path, data in files.items():
        if b"\0" not in data:
            for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
                if text in line:
                    yield f"{path}:{number}: {line.strip()}"


register("Repair-v0", Repair, max_turns=40, tasks=generate.tasks)
register("RepairSmall-v0", SmallRepair, max_turns=8, tasks=generate.small_tasks)
