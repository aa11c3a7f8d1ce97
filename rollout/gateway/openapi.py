"""What the gateway serves, as an OpenAPI document made of the models that requests are read with."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agar.rollout.gateway.chat_wire import ChatRequest
from agar.rollout.gateway.messages_wire import CountRequest, MessagesRequest
from agar.rollout.gateway.responses_wire import ResponsesRequest

REQUESTS: Mapping[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountRequest,
}
"""The body of every request that has one, by path."""
_REF = "#/components/schemas/{model}"
_STATUSES: Mapping[str, str] = {
    "200": "The reply; with `stream`, as server-sent events.",
    "400": "The request cannot be served; the error names the field.",
    "401": "No open session has this key.",
    "404": "The session stored no such response.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not JSON by its content type.",
    "429": "Too many calls are under way: come again after `retry-after`.",
    "502": "The engine failed.",
    "503": "The engine gave the reply up: come again after `retry-after`.",
    "504": "The engine did not reply in time.",
}


def describe() -> dict[str, Any]:
    """The document. Every path is also served below `/s/{session}`, where the key stands in the path."""
    modes, definitions = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(REQUESTS.values())], ref_template=_REF
    )
    paths: dict[str, Any] = {
        path: {"post": _operation(model.__doc__ or "", modes[(model, "validation")])}
        for path, model in REQUESTS.items()
    }
    response = {"name": "response", "in": "path", "required": True, "schema": {"type": "string"}}
    paths["/v1/responses/{response}"] = {
        "get": _operation("A response that the session stored.") | {"parameters": [response]},
        "delete": _operation("Delete a response that the session stored.") | {"parameters": [response]},
    }
    paths["/v1/models"] = {"get": _operation("The one model that a session has.")}
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agar gateway",
            "version": "1",
            "description": "Every path is also served below /s/{session}, where the session's key stands in the path.",
        },
        "paths": paths,
        "security": [{"bearer": []}, {"key": []}],
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"bearer": bearer, "key": {"type": "apiKey", "in": "header", "name": "x-api-key"}},
        },
    }


def _operation(text: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": text.strip().splitlines()[0],
        "responses": {status: {"description": told} for status, told in _STATUSES.items()},
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation
