"""A record of what happens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium

from agar.envs.base import StepResult, task_of
from agar.envs.spaces import MessageSpace, TurnSpace
from agar.envs.wrappers.base import ResetResult, Wrapper
from agar.types import Turn


class Record(Wrapper):
    """Appends every episode to a file, a line of JSON each: the task, what was heard and said, rewards, the end.

    An episode that is left before its end is written too, by the next reset or by `close`, as `left`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], path: Path | str) -> None:
        """Wrap an environment; the file and its folder are made when the first episode is written."""
        super().__init__(env)
        self.path = Path(path)
        self._episode: dict[str, Any] | None = None

    def on_reset(self, result: ResetResult, options: Mapping[str, Any]) -> ResetResult:
        """Begin an episode."""
        self._write("left")
        task = task_of(options)
        self._episode = {
            "env": self.spec.id if self.spec is not None else type(self.unwrapped).__name__,
            "task": None if task is None else task.key,
            "heard": MessageSpace().to_jsonable([result[0]])[0],
            "turns": [],
        }
        return result

    def on_step(self, action: Turn, result: StepResult) -> StepResult:
        """Note a turn."""
        observation, reward, terminated, truncated, info = result
        if self._episode is not None:
            said, heard = TurnSpace().to_jsonable([action])[0], MessageSpace().to_jsonable([observation])[0]
            self._episode["turns"].append({"said": said, "reward": float(reward), "heard": heard})
        if terminated or truncated:
            self._write(str(info.get("failure") or ("terminated" if terminated else "truncated")))
        return result

    def close(self) -> None:
        """Write what is begun, and close what is inside."""
        self._write("left")
        super().close()

    def _write(self, end: str) -> None:
        episode, self._episode = self._episode, None
        if episode is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**episode, "end": end}, default=str) + "\n")
