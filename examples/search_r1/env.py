"""SearchR1-v0: answer a question with the help of a search."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import agar
from agar.envs import Conversation, Rubric
from agar.envs.base import StepResult, task_of
from agar.envs.registry import spec
from agar.envs.spaces import Observation
from agar.errors import ConfigError
from agar.examples.search_r1.corpus import cached, invented_tasks, tasks
from agar.tool_servers.search.config import IndexSource, SearchConfig
from agar.tool_servers.search.service import Search
from agar.types import Message, TaskRow, ToolCall, ToolSpec, Turn

TOLD = "Answer the question; search first. Give the answer alone, as <answer>...</answer>."
TOLD_TAGS = (
    "Answer the question. To search, write <search>words to search for</search> and nothing else; you are then told "
    "what was found. When you know the answer, write it alone, as <answer>...</answer>."
)
_TAGGED = re.compile(r"<search>(.*?)</search>", re.DOTALL)


class SearchR1(agar.ToolEnv):
    """A question; the reward is the rubric's, of the whole conversation.

    Args:
        server: the URL of a search server (`agar tools serve search`), which decides what a search shows; None searches
            in this process.
        folder: where the indexes are that tasks name; the library's by default.
        count: passages that a search shows.
        text_chars: the longest text of a passage that is shown.
        rubric: grades the answer, or `module:attr` that names one.
        tags: searches are written in the text as `<search>…</search>`, and what is found comes as a user's message: for
            models whose chat template knows no tools, as in Search-R1 itself.
        told: the system message; empty for none.
        examples: what a user and an assistant have said before the question, in turn, the user first and the assistant
            last: for models that follow examples better than instructions.

    Raises:
        ConfigError: the examples do not end with the assistant.
    """

    def __init__(
        self,
        *,
        server: str | None = None,
        folder: str | None = None,
        count: int = 3,
        text_chars: int = 600,
        rubric: Rubric | str = "agar.examples.search_r1.reward:EXACT",
        tags: bool = False,
        told: str | None = None,
        examples: Sequence[str] = (),
    ) -> None:
        super().__init__(toolboxes=[server] if server is not None else None)
        self.rubric = Rubric.named(rubric)
        self._folder = None if server is not None else Path(folder) if folder is not None else cached()
        self._count, self._text_chars, self._tags = count, text_chars, tags
        self._told = told if told is not None else TOLD_TAGS if tags else TOLD
        if len(examples) % 2:
            raise ConfigError(f"examples must be said in turn and end with the assistant, got {len(examples)} texts")
        self._examples = [
            Message(role="assistant" if number % 2 else "user", content=text) for number, text in enumerate(examples)
        ]

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The search; none where it is written in tags."""
        return () if self._tags else super().tools

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Ask the question of `options`, or one of the train split."""
        await agar.AsyncEnv.areset(self, seed=seed, options=options)  # a seed decides what is drawn
        self.task = task_of(options) or self._draw()
        if self._folder is not None:
            source = IndexSource(folder=self._folder / str(self.task.payload.get("index", "index-0")))
            self.toolboxes = [Search(SearchConfig(source=source, count=self._count, text_chars=self._text_chars))]
        await super().areset(options=options)
        told = [Message(role="system", content=self._told)] if self._told else []
        question = Message(role="user", content=self.task.prompt)
        self._said = [*told, question]  # what is graded: the examples are not the agent's
        return [*told, *self._examples, question], {}

    async def astep(self, action: Turn) -> StepResult:
        """Search, or grade the answer."""
        self._said.append(action.message())
        result = await super().astep(_with_calls(action) if self._tags else action)
        if self._tags and isinstance(result[0], list):
            found = [replace(message, role="user", tool_call_id=None) for message in result[0]]
            result = (found, *result[1:])
        self._said += result[0] if isinstance(result[0], list) else ()
        return result

    async def answer(self, action: Turn) -> StepResult:
        """Grade the final text."""
        told = Conversation(task=self.task, messages=tuple(self._said))
        reward = await self.rubric.grade("trajectory", told)
        return [], reward.total, True, False, {"reward_parts": dict(reward.parts)}

    def gold(self) -> Turn | None:
        """Search for what leads to the answer, then say it; None for a task that does not say how."""
        made = sum(message.role == "assistant" for message in self._said)
        hops = self.task.payload.get("hops")
        if hops is None:
            return None
        if made >= len(hops):
            return answering(f"`{self.task.payload['answer']}`")
        return Turn(text=f"<search>{hops[made]}</search>") if self._tags else search_for(hops[made], call=made)

    def _draw(self) -> TaskRow:
        train = tasks("train") if self.spec is None else spec(self.spec.id).tasks("train")
        return train[int(self.np_random.integers(len(train)))]


def _with_calls(action: Turn) -> Turn:
    """The searches that are written in a text as calls; an answer beside them is too early to count."""
    return replace(
        action,
        tool_calls=tuple(
            ToolCall(id=f"tag_{number}", name="search", arguments={"query": query.strip()})
            for number, query in enumerate(_TAGGED.findall(action.text))
        ),
    )


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
