"""SearchR1-v0: answer a question with the help of a search."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import agar
from agar.envs import Conversation, Rubric
from agar.envs.base import StepResult, task_of
from agar.envs.spaces import Observation
from agar.examples.search_r1.corpus import cached, invented_tasks, tasks
from agar.tool_servers.search.config import IndexSource, SearchConfig
from agar.tool_servers.search.service import Search
from agar.types import Message, TaskRow, ToolCall, Turn

TOLD = "Answer the question; search first. Give the answer alone, as <answer>...</answer>."


class SearchR1(agar.ToolEnv):
    """A question; the reward is the rubric's, of the whole conversation.

    Args:
        server: the URL of a search server (`agar tools serve search`), which decides what a search shows; None searches
            in this process.
        folder: where the indexes are that tasks name; the library's by default.
        count: passages that a search shows.
        text_chars: the longest text of a passage that is shown.
        rubric: grades the answer, or `module:attr` that names one.
        told: the system message; empty for none.
    """

    def __init__(
        self,
        *,
        server: str | None = None,
        folder: str | None = None,
        count: int = 3,
        text_chars: int = 600,
        rubric: Rubric | str = "agar.examples.search_r1.reward:EXACT",
        told: str = TOLD,
    ) -> None:
        super().__init__(toolboxes=[server] if server is not None else None)
        self.rubric = Rubric.named(rubric)
        self._folder = None if server is not None else Path(folder) if folder is not None else cached()
        self._count, self._text_chars, self._told = count, text_chars, told

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Ask the question of `options`, or one of the train split."""
        task = task_of(options)
        if self._folder is not None:
            name = "index-0" if task is None else str(task.payload.get("index", "index-0"))
            settings = SearchConfig(
                source=IndexSource(folder=self._folder / name), count=self._count, text_chars=self._text_chars
            )
            self.toolboxes = [Search(settings)]
        await super().areset(seed=seed, options=options)
        self.task = task or self._draw()
        told = [Message(role="system", content=self._told)] if self._told else []
        self._said = [*told, Message(role="user", content=self.task.prompt)]
        return list(self._said), {}

    async def astep(self, action: Turn) -> StepResult:
        """Search, or grade the answer."""
        self._said.append(action.message())
        result = await super().astep(action)
        self._said += result[0] if isinstance(result[0], list) else ()
        return result

    async def answer(self, action: Turn) -> StepResult:
        """Grade the final text."""
        told = Conversation(task=self.task, messages=tuple(self._said))
        reward = await self.rubric.grade("trajectory", told)
        return [], reward.total, True, False, {"reward_parts": dict(reward.parts)}

    def gold(self) -> Turn | None:
        """Search for what leads to the answer, then say it; None for a task that does not say how."""
        made = sum(message.role == "tool" for message in self._said)
        hops = self.task.payload.get("hops")
        if hops is None:
            return None
        return search_for(hops[made], call=made) if made < len(hops) else answering(f"`{self.task.payload['answer']}`")

    def _draw(self) -> TaskRow:
        train = tasks("train")
        return train[int(self.np_random.integers(len(train)))]


def search_for(query: str, *, call: int) -> Turn:
    """The turn that searches; `call` numbers the call within the episode."""
    return Turn(tool_calls=(ToolCall(id=f"call_{call}", name="search", arguments={"query": query}),))


def answering(answer: str) -> Turn:
    """The turn that answers."""
    return Turn(text=f"<answer>{answer}</answer>")


def invented(**kwargs: Any) -> SearchR1:
    """The same over invented libraries."""
    return SearchR1(**{"folder": str(cached(invented=True)), **kwargs})


agar.register("SearchR1-v0", SearchR1, max_turns=5, tasks=tasks)
agar.register("InventedR1-v0", invented, max_turns=5, tasks=invented_tasks)
