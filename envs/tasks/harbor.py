"""Tasks in folders, in Harbor's format: what is asked for, a repository to work in, hidden tests, a solution.

    NAME/task.toml                settings: time, memory, anything under [metadata]
    NAME/instruction.md           what the agent is told
    NAME/environment/Dockerfile   how its place is built; the files that it copies lie beside it
    NAME/tests/test.sh            writes the reward to /logs/verifier/reward.txt; the agent never sees this folder
    NAME/solution/solve.sh        what solves it

Of a Dockerfile, FROM, WORKDIR and COPY are understood: enough for a repository that needs no more than the programs of
the sandbox. What else is in it is kept in `HarborTask.unbuilt`, for whoever plays the task to refuse it.
"""

import json
import math
import os
import posixpath
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from agar.errors import ConfigError
from agar.types import TaskRow

_MARK = "task.toml"
_UNITS = {"G": 1024, "M": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """One task.

    Attributes:
        name: its name, which is its folder's.
        instruction: what the agent is told.
        repository: the files of its working folder at the beginning, by relative path.
        tests: the files of `tests/`.
        solution: the files of `solution/`.
        image: what the Dockerfile starts from.
        workdir: the working folder's name there. In a sandbox of ours it is `/work`.
        unbuilt: lines of the Dockerfile that would have to be built.
        agent_timeout_s: how long the agent may take; None where the task does not say.
        verifier_timeout_s: how long the tests may take.
        memory_mib: the memory that it asks for; None where it does not.
        metadata: what else is known of it; the agent never sees it.
    """

    name: str
    instruction: str
    repository: Mapping[str, bytes]
    tests: Mapping[str, bytes]
    solution: Mapping[str, bytes] = field(default_factory=dict)
    image: str = "python:3.12-slim"
    workdir: str = "/app"
    unbuilt: tuple[str, ...] = ()
    agent_timeout_s: float | None = None
    verifier_timeout_s: float = 60.0
    memory_mib: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a task's folder.

        Raises:
            ConfigError: a file is missing or cannot be read as what it should be, or is a link to what lies outside.
        """
        try:
            _check_links(folder, folder.rglob("*"))
            settings = tomllib.loads((folder / _MARK).read_text(encoding="utf-8"))
            instruction = (folder / "instruction.md").read_text(encoding="utf-8").strip()
            place = _Place.build(folder / "environment")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder} is no task in Harbor's format: {error}") from error
        tests = _files(folder / "tests")
        if "test.sh" not in tests:
            raise ConfigError(f"{folder} has no tests/test.sh: a task needs tests that can judge it")
        place_settings = _table(settings, "environment", folder)
        if "docker_image" in place_settings:
            place.unbuilt.append(f"docker_image = {place_settings['docker_image']}")
        return cls(
            name=folder.name,
            instruction=instruction,
            repository=place.files,
            tests=tests,
            solution=_files(folder / "solution"),
            image=place.image,
            workdir=place.workdir,
            unbuilt=tuple(place.unbuilt),
            agent_timeout_s=_number(_table(settings, "agent", folder), "timeout_sec", folder),
            verifier_timeout_s=_number(_table(settings, "verifier", folder), "timeout_sec", folder) or 60.0,
            memory_mib=_memory_mib(place_settings, folder),
            metadata=_table(settings, "metadata", folder),
        )

    def moved(self, workdir: str = "/work", logs: str = "/tmp/logs") -> Self:
        """The same task with a container's paths in its texts, its working folder and `/logs`, replaced by others.

        A sandbox of ours can be written to below `/work` and `/tmp` only.
        """

        def move(text: str) -> str:
            for old, new in ((self.workdir, workdir), ("/logs", logs)):
                text = re.sub(rf"(?<![\w./-]){re.escape(old)}(?![\w-])", new, text) if old != "/" else text
            return text

        def moved(files: Mapping[str, bytes]) -> dict[str, bytes]:
            return {path: move(data.decode("latin-1")).encode("latin-1") for path, data in files.items()}

        return replace(
            self,
            instruction=move(self.instruction),
            tests=moved(self.tests),
            solution=moved(self.solution),
            workdir=workdir,
        )

    def write(self, parent: Path) -> Path:
        """Write the task's folder below `parent`, for this and for other programs to read.

        Raises:
            ConfigError: it is there already, or its metadata holds what is neither text, number, truth nor list.
        """
        settings: dict[str, dict[str, Any]] = {
            "metadata": dict(self.metadata),
            "agent": {} if self.agent_timeout_s is None else {"timeout_sec": self.agent_timeout_s},
            "verifier": {"timeout_sec": self.verifier_timeout_s},
            "environment": {} if self.memory_mib is None else {"memory_mb": self.memory_mib},
        }
        lines = ['version = "1.0"']
        for name, table in settings.items():
            lines += ["", f"[{name}]", *(f"{_toml(key)} = {_toml(value)}" for key, value in table.items())]
        folder = parent / self.name
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            raise ConfigError(f"{folder} is there already: write tasks to an empty folder") from error
        dockerfile = f"FROM {self.image}\nWORKDIR {self.workdir}\nCOPY repository/ .\n"
        parts = {"environment/repository": self.repository, "tests": self.tests, "solution": self.solution}
        files = {f"{part}/{path}": data for part, content in parts.items() for path, data in content.items()}
        own = {
            _MARK: "\n".join(lines) + "\n",
            "instruction.md": f"{self.instruction}\n",
            "environment/Dockerfile": dockerfile,
        }
        for path, data in {**files, **{path: text.encode() for path, text in own.items()}}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        return folder


class HarborTasks:
    """The task folders below a folder, in the order of their names; rows hold where they lie, and are read in play.

    Raises:
        ConfigError: there is none.
    """

    def __init__(self, folder: Path, *, split: str = "train", env: str = "") -> None:
        """Find them."""
        self._folders = sorted(path.parent.resolve() for path in folder.glob(f"*/{_MARK}"))
        self._split, self._env = split, env
        if not self._folders:
            raise ConfigError(f"{folder} holds no folder with a {_MARK}: name the folder that the task folders are in")

    def __len__(self) -> int:
        return len(self._folders)

    def __getitem__(self, index: int) -> TaskRow:
        folder = self._folders[index]
        try:
            _check_links(folder, [folder / "instruction.md"])
            prompt = (folder / "instruction.md").read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder} has no instruction.md that can be read: {error}") from error
        return TaskRow(
            key=folder.name, prompt=prompt, payload={"folder": str(folder)}, split=self._split, env=self._env
        )


@dataclass(slots=True)
class _Place:
    """What a Dockerfile comes to, as far as it is understood."""

    image: str = ""
    workdir: str = "/"
    files: dict[str, bytes] = field(default_factory=dict)
    unbuilt: list[str] = field(default_factory=list)

    @classmethod
    def build(cls, context: Path) -> "_Place":
        place = cls()
        path = context / "Dockerfile"
        if not path.is_file():
            place.unbuilt.append("no Dockerfile")
            return place
        for line in _instructions(path.read_text(encoding="utf-8")):
            word, _, rest = line.partition(" ")
            match word.upper(), shlex.split(rest):
                case "FROM", [image, *_] if not place.image:
                    place.image = image
                case "WORKDIR", [folder]:
                    place.workdir = posixpath.normpath(posixpath.join(place.workdir, folder))
                case "COPY", [*sources, target] if sources and not rest.startswith(("--", "[")):
                    place._copy(context, sources, target, line)
                case _:
                    place.unbuilt.append(line)
        inside = place.workdir.rstrip("/") + "/"
        outside = [path for path in place.files if not path.startswith(inside)]
        place.unbuilt += [f"COPY to {path}" for path in outside]
        place.files = {path.removeprefix(inside): data for path, data in place.files.items() if path.startswith(inside)}
        return place

    def _copy(self, context: Path, sources: list[str], target: str, line: str) -> None:
        for source in sources:
            origin = context / source
            if not origin.resolve().is_relative_to(context.resolve()) or not origin.exists():
                self.unbuilt.append(line)
                continue
            where = posixpath.normpath(posixpath.join(self.workdir, target))
            if origin.is_file():
                into = target.endswith("/") or target == "." or len(sources) > 1
                self.files[posixpath.join(where, origin.name) if into else where] = origin.read_bytes()
                continue
            for path, data in _files(origin).items():
                self.files[posixpath.join(where, path)] = data


def _instructions(text: str) -> Iterator[str]:
    """The instructions of a Dockerfile, one a line, without comments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            yield line.strip()


def _toml(value: Any) -> str:
    """A value in TOML's spelling, which for these is JSON's, but for two characters."""
    match value:
        case str() | int() | float():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
    raise ConfigError(f"a task's metadata holds texts, numbers, truth values and lists of them, got {value!r}")


def _check_links(folder: Path, paths: Iterable[Path]) -> None:
    """Refuse links out of a task, which somebody else may have made: what they name on this machine is not the task's.

    Raises:
        ConfigError: one is there.
    """
    top = os.path.realpath(folder)
    for path in paths:
        if not Path(os.path.realpath(path)).is_relative_to(top):
            raise ConfigError(f"{path} leads out of the task's folder: put the file itself in its place")


def _files(folder: Path) -> dict[str, bytes]:
    """The files below a folder by relative path; none where there is no such folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _table(settings: Mapping[str, Any], name: str, folder: Path) -> Mapping[str, Any]:
    table = settings.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{folder}/{_MARK}: {name} must be a table, got {table!r}")
    return table


def _number(table: Mapping[str, Any], name: str, folder: Path) -> float | None:
    value = table.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{folder}/{_MARK}: {name} must be a positive number, got {value!r}")
    return float(value)


def _memory_mib(table: Mapping[str, Any], folder: Path) -> int | None:
    """`memory_mb = 2048`, or in older files `memory = "2G"`."""
    if isinstance(text := table.get("memory"), str) and text[:-1].isdigit() and text[-1] in _UNITS:
        return int(text[:-1]) * _UNITS[text[-1]]
    number = _number(table, "memory_mb", folder)
    return None if number is None else int(number)
