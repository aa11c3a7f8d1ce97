"""The default agent: an observation, a model call, a turn."""

from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from agar.errors import ConfigError, MissingExtraError, to_install
from agar.types import AsyncEnvLike, Chat, Finish, SessionAccess, TaskRow, Turn

if TYPE_CHECKING:
    from agar.agents.openai_chat import OpenAIClient


class ChatAgent:
    """Plays by asking the model after every observation, with the whole conversation so far.

    One object serves any number of episodes at once. Over HTTP they share one connection pool; `aclose` (or
    `async with`) closes it.
    """

    def __init__(
        self,
        *,
        transport: Literal["http", "direct"] = "http",
        max_turns: int | None = None,
        model: str = "agar",
        timeout_s: float = 600.0,
        max_retries: int = 1,
    ) -> None:
        """Make the agent; see `ChatConfig` for the settings.

        Raises:
            ConfigError: max_turns is below 1, or there is no such transport.
            MissingExtraError: `transport="http"` and the `openai` package is not installed.
        """
        if max_turns is not None and max_turns < 1:
            raise ConfigError(f"max_turns must be at least 1, got {max_turns}: pass None for no limit")
        if transport not in ("http", "direct"):
            raise ConfigError(f'transport must be "http" or "direct", got {transport!r}')
        self.max_turns = max_turns
        self._http = (
            _http_client(model=model, timeout_s=timeout_s, max_retries=max_retries) if transport == "http" else None
        )

    async def play(self, env: AsyncEnvLike, task: TaskRow, session: SessionAccess) -> None:
        """Play until the environment ends the episode, the agent's own turn limit, or the model has no room left.

        Args:
            env: the environment.
            task: the task; `payload["seed"]`, where there is one, seeds the environment.
            session: records every model call.

        Raises:
            EngineError, DeadlineError, LedgerError: a model call failed.
            EnvError, SandboxError: the environment failed.
        """
        chat: Chat = self._http.chat(session) if self._http is not None else session.chat
        observation, _ = await env.areset(seed=task.payload.get("seed"), options={"task": task})
        messages = list(observation)
        turns = 0
        while self.max_turns is None or turns < self.max_turns:
            turn = await chat(messages, tools=env.tools)
            if _no_room(turn):
                return
            observation, _, terminated, truncated, _ = await env.astep(turn)
            turns += 1
            if terminated or truncated:
                return
            messages += [turn.message(), *observation]

    async def aclose(self) -> None:
        """Close the connection pool. Idempotent."""
        if self._http is not None:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _no_room(turn: Turn) -> bool:
    """True for the gateway's answer to a call beyond the budgets: nothing said, cut at once."""
    return turn.finish is Finish.LENGTH and not (turn.text or turn.tool_calls or turn.reasoning or turn.parse_error)


def _http_client(*, model: str, timeout_s: float, max_retries: int) -> "OpenAIClient":
    try:
        from agar.agents.openai_chat import OpenAIClient
    except ModuleNotFoundError as error:
        if error.name != "openai":
            raise
        raise MissingExtraError(
            f'ChatAgent(transport="http") needs openai: {to_install("openai")}, or pass transport="direct"'
        ) from error
    return OpenAIClient(model=model, timeout_s=timeout_s, max_retries=max_retries)
