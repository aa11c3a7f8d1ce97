"""The run folder: resolved settings, metrics, traces, checkpoints."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from agar.errors import ConfigError
from agar.ledger.trace import Trace
from agar.loop import Progress


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One saved point of a run.

    Attributes:
        path: its folder: `<policy>/` as the trainer saved it, `source.json`, `progress.json`.
    """

    path: Path

    def progress(self) -> Progress:
        """Steps done and the versions served.

        Raises:
            ConfigError: the checkpoint is damaged.
        """
        try:
            return Progress(**json.loads((self.path / "progress.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise self._damaged("progress.json", error) from error

    def source(self) -> bytes:
        """The state of the batch source.

        Raises:
            ConfigError: the checkpoint is damaged.
        """
        try:
            state = (self.path / "source.json").read_bytes()
            json.loads(state)
        except (OSError, ValueError) as error:
            raise self._damaged("source.json", error) from error
        return state

    def _damaged(self, name: str, error: Exception) -> ConfigError:
        return ConfigError(
            f"the checkpoint {self.path} is damaged ({name}: {error}): move it out of {self.path.parent} to go on "
            "from the one before, or to start over where there is none"
        )


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def create(cls, parent: Path, name: str) -> "RunFolder":
        """A new folder `parent/name-YYYYmmdd-HHMMSS`, with a number behind it where that is taken.

        Raises:
            ConfigError: the folder cannot be made.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for suffix in ["", *(f"-{n}" for n in range(2, 100))]:
            path = parent / f"{name}-{stamp}{suffix}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise ConfigError(f"cannot make the run folder {path}: {error.strerror}: set run.dir") from error
            return cls(path.resolve())
        raise ConfigError(f"{parent} already holds a hundred runs named {name}-{stamp}: set run.name")

    @classmethod
    @contextmanager
    def new(cls, parent: Path, name: str, *, command: str, settings: str) -> Iterator["RunFolder"]:
        """A new folder for a command's run, claimed until the end of the context; see `create` and `claimed`.

        Args:
            parent: where run folders go.
            name: what its name begins with.
            command: `train`, `sft`, `eval` or `rollout`; only the same command resumes it.
            settings: the resolved settings, JSON.

        Raises:
            ConfigError: the folder cannot be made.
        """
        folder = cls.create(parent, name)
        (folder.path / "command").write_text(command + "\n")
        folder.save_recipe(settings)
        with folder.claimed():
            yield folder

    @classmethod
    def open(cls, path: Path, *, command: str | None = None) -> "RunFolder":
        """An existing run.

        Args:
            path: its folder.
            command: the command that must have made it; None for any.

        Raises:
            ConfigError: it is not a run folder, or another command's.
        """
        if not (path / "recipe.json").is_file():
            raise ConfigError(f"{path} is not a run folder: it has no recipe.json; give the folder that a run printed")
        record = path / "command"
        made_by = record.read_text().strip() if record.is_file() else None
        if command is not None and made_by is not None and made_by != command:
            raise ConfigError(
                f"{path} is the folder of an agar {made_by}, which agar {command} cannot go on with: give the folder "
                f"that an agar {command} printed"
            )
        return cls(path.resolve())

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other processes from running in this folder meanwhile; a claim ends with its process, however it ends.

        Raises:
            ConfigError: another process runs in it.
        """
        with (self.path / ".lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"the run in {self.path} is still under way in another process: wait for its end, or stop it first"
                ) from error
            yield

    @property
    def recipe(self) -> Path:
        """The resolved settings."""
        return self.path / "recipe.json"

    def save_recipe(self, text: str) -> None:
        """Write the resolved settings, so that the folder says what ran and a resume goes on with it."""
        partial = self.recipe.with_name(f"{self.recipe.name}.partial")
        partial.write_text(text)
        os.replace(partial, self.recipe)

    @property
    def metrics(self) -> Path:
        """One JSON object a step."""
        return self.path / "metrics.jsonl"

    @property
    def logs(self) -> Path:
        """Logs of the engines and the router."""
        return self.path / "logs"

    @property
    def picture(self) -> Path:
        """The reward curve."""
        return self.path / "reward.png"

    def keep(self, traces: Sequence[Trace], name: str) -> None:
        """Write traces to `traces/<name>.jsonl`, one a line."""
        target = self.path / "traces" / f"{name}.jsonl"
        target.parent.mkdir(exist_ok=True)
        with target.open("ab") as file:
            for trace in traces:
                file.write(trace.dump() + b"\n")

    def checkpoints(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first."""
        found = (self.path / "checkpoints").glob("step-*")
        return [Checkpoint(path) for path in sorted(found)]

    def rewind(self) -> Checkpoint | None:
        """Go back to the newest checkpoint: traces of what will be played again are set aside.

        Those are the batches of later steps, and the evaluations from the checkpoint's own step on. What is left of a
        checkpoint that was never finished is deleted; the run must be `claimed`, or it could be one under way.

        Returns:
            The checkpoint; None where there is none and the run starts over.
        """
        found = self.checkpoints()
        newest = found[-1] if found else None
        for unfinished in (self.path / "checkpoints").glob(".*.partial"):
            shutil.rmtree(unfinished, ignore_errors=True)
        step = newest.progress().step if newest else -1
        for trace in (self.path / "traces").glob("*-*.jsonl"):
            kind, at = trace.stem.split("-")[:2]
            if int(at) > step or (kind == "eval" and int(at) == step):
                aside = self.path / "before-resume"
                aside.mkdir(exist_ok=True)
                os.replace(trace, aside / f"{time.time_ns()}-{trace.name}")
        return newest

    def start_checkpoint(self, step: int) -> Path:
        """An empty folder to write a checkpoint into; it counts once `finish_checkpoint` has renamed it."""
        partial = self.path / "checkpoints" / f".step-{step:06d}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        return partial

    def finish_checkpoint(self, partial: Path, progress: Progress, source: bytes, *, keep: int) -> Checkpoint:
        """Complete a checkpoint, then forget the oldest beyond `keep`."""
        (partial / "source.json").write_bytes(source)
        (partial / "progress.json").write_text(json.dumps(asdict(progress)))
        final = partial.with_name(f"step-{progress.step:06d}")
        if final.exists():
            _delete(final)
        os.replace(partial, final)
        for old in self.checkpoints()[:-keep]:
            _delete(old.path)
        return Checkpoint(final)


def _delete(checkpoint: Path) -> None:
    """Delete one so that what a kill leaves of it does not pass for a checkpoint: `rewind` sweeps it."""
    partial = checkpoint.with_name(f".{checkpoint.name}.old.partial")
    shutil.rmtree(partial, ignore_errors=True)
    os.rename(checkpoint, partial)
    shutil.rmtree(partial)
