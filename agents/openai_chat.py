"""Model calls through the official `openai` client, as any OpenAI program would make them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import openai

from agar.errors import AgarError, DeadlineError, EngineAborted, EngineError, LedgerError, SessionClosedError
from agar.ledger.canonical import spell
from agar.types import Chat, Finish, ImagePart, Message, SessionAccess, ToolCall, ToolSpec, Turn

_FINISH: Mapping[str, Finish] = {"length": Finish.LENGTH, "abort": Finish.ABORT}


class OpenAIClient:
    """One connection pool for all sessions of an agent."""

    def __init__(self, *, model: str, timeout_s: float, max_retries: int) -> None:
        """Make the client; nothing is connected yet.

        Args:
            model: the model name that is sent.
            timeout_s: deadline of one call, retries not counted.
            max_retries: repetitions, with the same body, after a 5xx or a broken connection.
        """
        self._model = model
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._client: openai.AsyncOpenAI | None = None

    def chat(self, session: SessionAccess) -> Chat:
        """The `Chat` of a session: its base URL and its key."""
        if self._client is None:
            # trust_env=False: a proxy that the machine uses for the internet has no business before the gateway.
            http = openai.DefaultAsyncHttpxClient(trust_env=False, timeout=self._timeout_s)
            self._client = openai.AsyncOpenAI(
                api_key=session.id, base_url=session.base_url, max_retries=self._max_retries, http_client=http
            )
        client = self._client.with_options(api_key=session.id, base_url=session.base_url)
        return _SessionChat(client, model=self._model, timeout_s=self._timeout_s)

    async def aclose(self) -> None:
        """Close the pool. Idempotent; the next `chat` opens another."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class _SessionChat:
    def __init__(self, client: openai.AsyncOpenAI, *, model: str, timeout_s: float) -> None:
        self._client = client
        self._model = model
        self._timeout_s = timeout_s

    async def __call__(self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = ()) -> Turn:
        body: dict[str, Any] = {"messages": [to_openai(message) for message in messages]}
        if tools:
            body["tools"] = [tool_to_openai(spec) for spec in tools]
        try:
            # The rows are in wire form already. As `messages=` the client would walk the type annotations of the whole
            # history at every call, which costs more than all the rest of it; `extra_body` goes out as it is.
            completion = await self._client.chat.completions.create(
                model=self._model, messages=[], extra_body=body, timeout=self._timeout_s
            )
        except openai.OpenAIError as error:
            raise self._attributed(error) from error
        return turn_from_openai(completion)

    def _attributed(self, error: openai.OpenAIError) -> AgarError:
        if isinstance(error, openai.APITimeoutError):
            return DeadlineError(f"the gateway gave no reply to a model call within {self._timeout_s:g} s")
        if not isinstance(error, openai.APIStatusError):
            return EngineError(f"the gateway at {self._client.base_url} cannot be reached: {error}")
        said = f"the gateway answered a model call with {error.status_code}: {error.message}"
        code = error.body.get("code") if isinstance(error.body, dict) else None
        if error.status_code == 401:
            return SessionClosedError(said)
        if code == "cannot_record":
            return LedgerError(said)
        if code == "engine_aborted":
            return EngineAborted(said)
        return DeadlineError(said) if error.status_code == 504 else EngineError(said)


def to_openai(message: Message) -> dict[str, Any]:
    """A message in the form of chat completions; reasoning travels as `reasoning_content`."""
    content: Any = message.content
    if not isinstance(content, str):
        content = [
            {"type": "image_url", "image_url": {"url": part.url}}
            if isinstance(part, ImagePart)
            else {"type": "text", "text": part.text}
            for part in content
        ]
    row: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        row["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": spell(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.reasoning is not None:
        row["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    return row


def tool_to_openai(spec: ToolSpec) -> dict[str, Any]:
    """A tool in the form of chat completions."""
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)},
    }


def turn_from_openai(completion: Any) -> Turn:
    """The turn in a chat completion.

    Arguments that are not a JSON object become the turn's `parse_error`, as does what the server says about it in a
    `parse_error` field.

    Raises:
        EngineError: the completion holds no choice.
    """
    if not completion.choices:
        raise EngineError("the gateway's completion holds no choice: something else answers at this URL")
    choice = completion.choices[0]
    extra = choice.message.model_extra or {}
    calls: list[ToolCall] = []
    parse_error: str | None = extra.get("parse_error")
    for call in choice.message.tool_calls or ():
        try:
            arguments = json.loads(call.function.arguments or "{}")
        except ValueError as error:
            arguments, parse_error = None, f"the arguments of {call.function.name} are not JSON: {error}"
        if isinstance(arguments, dict):
            calls.append(ToolCall(id=call.id, name=call.function.name, arguments=arguments))
        elif parse_error is None:
            parse_error = f"the arguments of {call.function.name} are not a JSON object"
    return Turn(
        text=choice.message.content or "",
        reasoning=extra.get("reasoning_content") or extra.get("reasoning"),
        tool_calls=tuple(calls),
        finish=_FINISH.get(choice.finish_reason, Finish.STOP),
        parse_error=parse_error,
    )
