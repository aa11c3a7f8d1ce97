"""An existing program as an agent: nothing of it is changed but its environment variables.

The environment's observation is the program's task, and what the program answers is the environment's next action, so
that the environment's own reward applies. An environment that does not end there is answered by another run of the
program, in the same folder. An environment that judges files (`info["collects"]` of its reset) is answered with those
that the program leaves.

Who is to blame? What a model said can make a program fail, so that a program that fails, or floods its output, has
lost (`agent_error`) and one that takes too long has run out of its budget (`truncated`): both count. What happens
before the first reply, or because an engine failed, no model had a part in (`infra_error`): it does not count.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from agar.agents.config import HarnessConfig
from agar.agents.harness.artefacts import keep_artefacts
from agar.agents.harness.place import Place, open_place
from agar.envs.artifacts import Artifacts
from agar.errors import EnvError, ToolError
from agar.sandbox.base import ExecResult
from agar.types import AgentReport, AsyncEnvLike, Message, Outcome, SessionAccess, TaskRow, Turn

logger = logging.getLogger(__name__)

_KEPT_CHARS = 20_000
_KEY_SHOWN = "<session key>"
_BLANK = re.compile(r"\{(prompt|base_url|model)\}")


class Harness:
    """Plays by running a program; one object serves any number of episodes at once."""

    def __init__(self, config: HarnessConfig) -> None:
        """Nothing starts before an episode does.

        Args:
            config: the program and how it is run.
        """
        self.config = config

    async def play(self, env: AsyncEnvLike, task: TaskRow, session: SessionAccess) -> AgentReport:
        """Play until the environment ends the episode, or the program fails.

        Args:
            env: the environment. A `files` in its reset's info, relative path to text or bytes, is laid out in the
                program's folder; with a `collects`, patterns, the files that match are the program's answer.
            task: the task; `payload["seed"]`, where there is one, seeds the environment.
            session: records every model call.

        Returns:
            What became of the program: `runs`, each with its exit code, its time and its bounded output, and
            `artefacts`.

        Raises:
            ConfigError, MissingExtraError, UnsupportedPlatformError: no program can be run so on this machine.
            EnvError: the environment failed.
            SandboxError: the program's place failed.
        """
        observation, info = await env.areset(seed=task.payload.get("seed"), options={"task": task})
        place, base_url = open_place(self.config, session)
        async with place:
            episode = _Episode(self.config, place, session, base_url, collects=info.get("collects"))
            await episode.lay_out(observation, info.get("files") or {})
            report = await episode.play(env, observation)
            if self.config.artefacts and self.config.artefacts_dir is not None:
                kept = await keep_artefacts(place, self.config.artefacts, self.config.artefacts_dir, name=task.key)
                if "error" in kept:
                    kept["error"] = episode.hide(kept["error"])
                    told = "the artefacts of %s could not be kept: %s; is agent.artefacts_dir full, or read-only?"
                    logger.warning(told, task.key, kept["error"])
                else:
                    kept["files"] = [episode.hide(path) for path in kept["files"]]
                report = replace(report, meta={**report.meta, "artefacts": kept})
        return report

    async def aclose(self) -> None:
        """Nothing is held between episodes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@dataclass(slots=True)
class _Episode:
    config: HarnessConfig
    place: Place
    session: SessionAccess
    base_url: str
    collects: Sequence[str] | None
    runs: list[ExecResult] = field(default_factory=list)

    async def lay_out(self, observation: Sequence[Message], files: Mapping[str, str | bytes]) -> None:
        """Put the files into the program's folder: the settings' own, then the task's."""
        own = {path: self._fill(text, _text(observation)) for path, text in self.config.files.items()}
        try:
            for path, data in {**own, **files}.items():
                await self.place.write(path, data)
        except ToolError as error:  # the program has done nothing yet
            raise EnvError(f"the program's files could not be laid out: {error}") from error

    async def play(self, env: AsyncEnvLike, observation: Sequence[Message]) -> AgentReport:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.config.timeout_s
        while True:
            result = await self._run(_text(observation), max(until - loop.time(), 0.001))
            ended = self._judge(result)
            if ended is not None:
                return AgentReport(outcome=ended[0], reason=ended[1], meta=self._meta())
            observation, _, terminated, truncated, _ = await env.astep(await self._answer(result))
            if terminated or truncated:
                return AgentReport(meta=self._meta())

    async def _run(self, prompt: str, timeout_s: float) -> ExecResult:
        own = {name: self._fill(value, prompt) for name, value in self.config.env.items()}
        if self.runs and self.config.answer_file is not None:
            with contextlib.suppress(ToolError):  # no file, or none that could be read as an answer
                if await self.place.read(self.config.answer_file):
                    await self.place.write(self.config.answer_file, b"")  # the last run's answer is not this one's
        self.session.pick_up()
        try:
            result = await self.place.exec(
                [self._fill(word, prompt) for word in self.config.command],
                env={**self.session.env(base_url=self.base_url), **own},
                stdin=self._fill(self.config.stdin, prompt),
                timeout_s=timeout_s,
            )
        finally:
            self.session.hang_up()  # whoever called from there is gone
        result = replace(result, stdout=self.hide(result.stdout), stderr=self.hide(result.stderr))
        self.runs.append(result)
        return result

    def _judge(self, result: ExecResult) -> tuple[Outcome, str] | None:
        """How the episode has ended by this run; None where the program has given its answer."""
        said = result.stderr.strip() or result.stdout.strip()
        last = f": {said.splitlines()[-1][:300]}" if said else ""
        if self.session.failure is not None:
            return Outcome.INFRA_ERROR, f"a model call failed: {self.session.failure}"
        if result.killed_by == "timeout":
            return Outcome.TRUNCATED, f"the program's time budget of {self.config.timeout_s:g} s{last}"
        if result.code == 0 and result.killed_by is None:
            return None
        how = f"was killed ({result.killed_by})" if result.killed_by else f"ended with code {result.code}"
        if self.session.replies == 0:
            return Outcome.INFRA_ERROR, f"the program {how} before its first model call{last}"
        return Outcome.AGENT_ERROR, f"the program {how}{last}"

    async def _answer(self, result: ExecResult) -> Turn:
        if self.collects is not None:
            return await self._files(self.collects)
        if self.config.answer_file is None:
            return Turn(text=result.stdout.strip())
        try:
            data = await self.place.read(self.config.answer_file)
        except ToolError:  # no file, no answer
            return Turn()
        return Turn(text=self.hide(data.decode("utf-8", "replace")).strip())

    async def _files(self, patterns: Sequence[str]) -> Turn:
        try:
            artifacts = await Artifacts.collect(self.place, patterns)
        except ToolError:  # more than anybody wants to read: nothing is handed in
            artifacts = Artifacts(files={}, patterns=tuple(patterns))
        key, shown = self.session.id.encode(), _KEY_SHOWN.encode()
        hidden = {self.hide(path): data.replace(key, shown) for path, data in artifacts.files.items()}
        return Turn(text=replace(artifacts, files=hidden).to_text())

    def _fill(self, text: str, prompt: str) -> str:
        values = {"prompt": prompt, "base_url": self.base_url, "model": self.config.model}
        return _BLANK.sub(lambda found: values[found[1]], text)

    def hide(self, text: str) -> str:
        """Without the session key, which a program may print."""
        return text.replace(self.session.id, _KEY_SHOWN)

    def _meta(self) -> dict[str, Any]:
        return {
            "runs": [
                {
                    "code": run.code,
                    "killed_by": run.killed_by,
                    "wall_s": run.wall_s,
                    "stdout": run.stdout[-_KEPT_CHARS:],
                    "stderr": run.stderr[-_KEPT_CHARS:],
                }
                for run in self.runs
            ]
        }


def _text(messages: Sequence[Message]) -> str:
    """What the messages say, without what no process can be given, for a model may have had it said."""
    text = "\n\n".join(message.text for message in messages if message.text)
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
