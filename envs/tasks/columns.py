"""Which column of a data set is what of a task."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from agar.config import BaseConfig
from agar.errors import ConfigError
from agar.types import TaskRow


class TaskColumns(BaseConfig):
    """Names of columns. The defaults read what `TaskRow` would write; most public data sets need one name changed."""

    prompt: str | None = Field(None, min_length=1)
    """The text that the agent is given; a list of messages (`role`, `content`) goes to the payload as `messages`, and
    the last one's text is the prompt. None: a column `prompt`, where there is one, else prompts are empty."""
    key: str | None = None
    """A column of unique names; None numbers the rows: `name/17`, where 17 is the row's place in the file."""
    payload: tuple[str, ...] | None = None
    """The columns that the environment gets; None: a column `payload` where it is a table, else every other column."""

    def row(self, columns: Mapping[str, Any], *, name: str, index: int, split: str, env: str) -> TaskRow:
        """One row of a data set as a task.

        Args:
            columns: the row.
            name: the data set's, for keys.
            index: the row's place in it.
            split: the split that it belongs to.
            env: the environment that it is for.

        Raises:
            ConfigError: a column that is asked for is not there, or a prompt is neither text nor messages.
        """
        asked = [*(self.payload or ()), *(column for column in (self.key, self.prompt) if column)]
        missing = [column for column in asked if column not in columns]
        if missing:
            raise ConfigError(
                f"{name} row {index} has columns {sorted(columns)}, not {missing}: set the columns' names"
            )
        column = self.prompt or "prompt"
        payload = self._payload(columns, column)
        prompt = columns.get(column, "")
        if not isinstance(prompt, str):
            payload["messages"] = prompt = _messages(prompt, f"{name} row {index}: {column}")
            prompt = prompt[-1]["content"]
        key = str(columns[self.key]) if self.key else f"{name}/{index}"
        return TaskRow(key=key, prompt=prompt, payload=payload, split=split, env=env)

    def _payload(self, columns: Mapping[str, Any], prompt: str) -> dict[str, Any]:
        if self.payload is not None:
            return {column: columns[column] for column in self.payload}
        if isinstance(columns.get("payload"), Mapping):
            return dict(columns["payload"])
        return {column: value for column, value in columns.items() if column != prompt}


def _messages(value: Any, where: str) -> list[dict[str, str]]:
    if isinstance(value, list) and value and all(map(_is_message, value)):
        return [{"role": item["role"], "content": item["content"]} for item in value]
    raise ConfigError(f"{where} must be text or a list of messages with role and content, got {str(value)[:80]!r}")


def _is_message(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("role"), str) and isinstance(item.get("content"), str)
