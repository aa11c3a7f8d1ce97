"""The three dialects as a client speaks them: a neutral conversation out, a neutral message back.

The neutral form is that of chat completions. Streams are put together from their pieces, never read from a summary.
"""

import json
from collections.abc import Mapping
from typing import Any

TOOLS = [{"type": "function", "function": {"name": "sh", "description": "Run.", "parameters": {"type": "object"}}}]


class Said:
    """A reply that reached the client.

    Attributes:
        id: without the dialect's prefix.
        whole_id: with it.
        message: in the neutral form.
        cut: whether it says that a length ended it.
        prompt_tokens: of its usage; None where it has none.
        sampled_tokens: of its usage; None where it has none.
    """

    def __init__(self, *, id: str, message: dict[str, Any], cut: bool, usage: tuple[int, int] | None) -> None:
        self.whole_id, self.id = id, id.partition("_" if "_" in id[:6] else "-")[2]
        self.message, self.cut = message, cut
        self.prompt_tokens, self.sampled_tokens = usage or (None, None)
        self.streamed_node: int | None = None

    @property
    def live(self) -> int | None:
        """Which of its session's streams was sent as it was sampled; None where it came as a whole."""
        _tag, _, number = self.id.partition("-")
        return int(number.removeprefix("live-")) if number.startswith("live-") else None

    @property
    def node(self) -> int | None:
        """The node that the id names; None where a budget answered."""
        if self.live is not None:
            return self.streamed_node
        _tag, _, number = self.id.partition("-")
        return None if number.startswith("stop-") else int(number)


def message_of(texts: list[str], thoughts: list[str], calls: list[tuple[str, str, str]]) -> dict[str, Any]:
    """The pieces of a reply as a neutral message."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
    return message


def events_of(text: str) -> list[dict[str, Any]]:
    """The data of the events of a stream; comments are left out."""
    events = []
    for block in text.split("\n\n"):
        data = [line.removeprefix("data: ") for line in block.split("\n") if line.startswith("data: ")]
        if data and data != ["[DONE]"]:
            events.append(json.loads("\n".join(data)))
    return events


class Chat:
    """OpenAI's chat completions."""

    path = "/v1/chat/completions"

    @staticmethod
    def body(request: dict[str, Any]) -> dict[str, Any]:
        """The request itself."""
        stream = {"stream_options": {"include_usage": True}} if request.get("stream") else {}
        return {**request, "tools": TOOLS, **stream}

    @staticmethod
    def read(reply: dict[str, Any]) -> Said:
        """A whole reply."""
        (choice,) = reply["choices"]
        message = choice["message"]
        calls = [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ]
        thoughts = [message["reasoning_content"]] if "reasoning_content" in message else []
        return Said(
            id=reply["id"],
            message=message_of([message["content"] or ""], thoughts, calls),
            cut=choice["finish_reason"] == "length",
            usage=(reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]),
        )

    @staticmethod
    def merge(text: str) -> Said:
        """A stream."""
        assert text.endswith("data: [DONE]\n\n"), "a stream ended without its end"
        chunks = events_of(text)
        texts: list[str] = []
        thoughts: list[str] = []
        calls: dict[int, list[str]] = {}
        finish = None
        for chunk in chunks:
            for choice in chunk["choices"]:
                delta = choice["delta"]
                finish = choice["finish_reason"] or finish
                texts += [delta["content"]] if delta.get("content") else []
                thoughts += [delta["reasoning_content"]] if "reasoning_content" in delta else []
                for piece in delta.get("tool_calls") or ():
                    call = calls.setdefault(piece["index"], ["", "", ""])
                    call[0] += piece.get("id", "")
                    call[1] += piece["function"].get("name", "")
                    call[2] += piece["function"].get("arguments", "")
        assert finish is not None, "a stream ended without a finish reason"
        usage = chunks[-1]["usage"]
        return Said(
            id=chunks[0]["id"],
            message=message_of(texts, thoughts, [(a, b, c) for a, b, c in calls.values()]),
            cut=finish == "length",
            usage=(usage["prompt_tokens"], usage["completion_tokens"]),
        )

    @staticmethod
    def error(body: dict[str, Any]) -> str:
        """The message of an error."""
        assert set(body["error"]) == {"message", "type", "param", "code"}
        return str(body["error"]["message"])


class Messages:
    """Anthropic's Messages."""

    path = "/v1/messages"

    @classmethod
    def body(cls, request: dict[str, Any]) -> dict[str, Any]:
        """Tool results are blocks of a user's message, calls and reasoning blocks of an assistant's."""
        rows: list[dict[str, Any]] = []
        for row in request["messages"]:
            if row["role"] == "tool":
                block = {"type": "tool_result", "tool_use_id": row["tool_call_id"], "content": row["content"]}
                if rows and isinstance(rows[-1]["content"], list) and rows[-1]["role"] == "user":
                    rows[-1]["content"].append(block)
                else:
                    rows.append({"role": "user", "content": [block]})
            elif row["role"] == "assistant":
                rows.append({"role": "assistant", "content": cls._blocks(row)})
            else:
                rows.append(dict(row))
        tools = [{"name": "sh", "description": "Run.", "input_schema": {"type": "object"}}]
        return {**request, "messages": rows, "tools": tools, "max_tokens": 64}

    @staticmethod
    def _blocks(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if row.get("reasoning_content"):
            blocks.append({"type": "thinking", "thinking": row["reasoning_content"], "signature": "s"})
        if row.get("content"):
            content = row["content"]
            blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
        for call in row.get("tool_calls") or []:
            value = json.loads(call["function"]["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": value})
        return blocks

    @staticmethod
    def _said(reply: Mapping[str, Any], blocks: list[dict[str, Any]]) -> Said:
        return Said(
            id=reply["id"],
            message=message_of(
                [block["text"] for block in blocks if block["type"] == "text"],
                [block["thinking"] for block in blocks if block["type"] == "thinking"],
                [
                    (b["id"], b["name"], json.dumps(b["input"], ensure_ascii=False, separators=(",", ":")))
                    for b in blocks
                    if b["type"] == "tool_use"
                ],
            ),
            cut=reply["stop_reason"] == "max_tokens",
            usage=(reply["usage"]["input_tokens"], reply["usage"]["output_tokens"]),
        )

    @classmethod
    def read(cls, reply: dict[str, Any]) -> Said:
        """A whole reply."""
        return cls._said(reply, reply["content"])

    @classmethod
    def merge(cls, text: str) -> Said:
        """A stream."""
        events = [event for event in events_of(text) if event["type"] != "ping"]
        assert events[0]["type"] == "message_start"
        assert events[-1]["type"] == "message_stop", "a stream ended without its end"
        blocks: list[dict[str, Any]] = []
        reply = dict(events[0]["message"])
        for event in events:
            if event["type"] == "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append({**event["content_block"], "json": ""})
            elif event["type"] == "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                field = {"thinking_delta": "thinking", "signature_delta": "signature", "text_delta": "text"}
                if delta["type"] == "input_json_delta":
                    block["json"] += delta["partial_json"]
                else:
                    name = field[delta["type"]]
                    block[name] += delta[name]
            elif event["type"] == "message_delta":
                reply |= {**event["delta"], "usage": event["usage"]}
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block["json"])
        return cls._said(reply, blocks)

    @staticmethod
    def error(body: dict[str, Any]) -> str:
        """The message of an error."""
        assert (body["type"], set(body["error"])) == ("error", {"type", "message"})
        return str(body["error"]["message"])


class Responses:
    """OpenAI's Responses."""

    path = "/v1/responses"

    @staticmethod
    def body(request: dict[str, Any]) -> dict[str, Any]:
        """Reasoning, message and calls are items of their own."""
        items: list[dict[str, Any]] = []
        for row in request["messages"]:
            if row["role"] == "tool":
                output = {"call_id": row["tool_call_id"], "output": row["content"]}
                items.append({"type": "function_call_output", **output})
                continue
            if row.get("reasoning_content"):
                summary = [{"type": "summary_text", "text": row["reasoning_content"]}]
                items.append({"type": "reasoning", "summary": summary})
            calls = row.get("tool_calls") or []
            if row.get("content") or not (calls or row.get("reasoning_content")):
                items.append({"type": "message", "role": row["role"], "content": row["content"] or ""})
            items += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
        rest = {name: value for name, value in request.items() if name != "messages"}
        return {**rest, "input": items, "tools": [{"type": "function", **tool["function"]} for tool in TOOLS]}

    @classmethod
    def read(cls, reply: dict[str, Any]) -> Said:
        """A whole reply."""
        items = reply["output"]
        assert reply["status"] in ("completed", "incomplete")
        return Said(
            id=reply["id"],
            message=message_of(
                [part["text"] for item in items if item["type"] == "message" for part in item["content"]],
                [part["text"] for item in items if item["type"] == "reasoning" for part in item["summary"]],
                [(i["call_id"], i["name"], i["arguments"]) for i in items if i["type"] == "function_call"],
            ),
            cut=reply["status"] == "incomplete",
            usage=(reply["usage"]["input_tokens"], reply["usage"]["output_tokens"]),
        )

    @classmethod
    def merge(cls, text: str) -> Said:
        """A stream; its deltas must come to what its last event says."""
        events = events_of(text)
        assert events[-1]["type"] in ("response.completed", "response.incomplete"), "a stream ended without its end"
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        whole = events[-1]["response"]
        heard = {"response.output_text.delta": "", "response.reasoning_summary_text.delta": ""}
        arguments: dict[str, str] = {}
        for event in events:
            if event["type"] in heard:
                heard[event["type"]] += event["delta"]
            elif event["type"] == "response.function_call_arguments.delta":
                arguments[event["item_id"]] = arguments.get(event["item_id"], "") + event["delta"]
        said = cls.read(whole)
        assert heard["response.output_text.delta"] == said.message["content"]
        assert heard["response.reasoning_summary_text.delta"] == said.message.get("reasoning_content", "")
        assert list(arguments.values()) == [c["function"]["arguments"] for c in said.message.get("tool_calls", ())]
        return said

    @staticmethod
    def error(body: dict[str, Any]) -> str:
        """The message of an error."""
        return Chat.error(body)


DIALECTS = (Chat, Messages, Responses)
