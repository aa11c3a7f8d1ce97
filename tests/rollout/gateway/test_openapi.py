import json
from pathlib import Path

import httpx
import jsonschema
import pytest

from agar.rollout.gateway.openapi import REQUESTS, describe

WIRE = Path(__file__).parent / "wire"


def references(value):
    if isinstance(value, dict):
        yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from references(item)


async def test_the_document_needs_no_key_and_is_the_same_for_all(gateway):
    async with httpx.AsyncClient() as http:
        reply = await http.get(gateway.base_url.removesuffix("/v1") + "/openapi.json")
    assert (reply.status_code, reply.json()) == (200, describe())


def test_every_path_that_is_served_is_described_and_every_reference_is_defined():
    document = describe()
    assert set(document["paths"]) == {*REQUESTS, "/v1/responses/{response}", "/v1/models"}
    defined = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= defined
    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def recorded():
    for file in sorted(WIRE.glob("*.json")):
        for number, pair in enumerate(json.loads(file.read_text("utf-8"))["pairs"]):
            if pair["request"]["path"] in REQUESTS:
                yield pytest.param(pair["request"], id=f"{file.stem}-{number}")


@pytest.mark.parametrize("request_", list(recorded()))
def test_what_real_programs_sent_is_what_the_document_allows(request_, restored):
    document = describe()
    body = document["paths"][request_["path"]]["post"]["requestBody"]["content"]["application/json"]["schema"]
    jsonschema.validate(restored(request_["body"]), {**body, "components": document["components"]})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "wizard"}]}),
        ("/v1/chat/completions", {"messages": [], "n": 0}),
        ("/v1/responses", {"input": 3}),
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}),
    ],
)
def test_the_document_refuses_what_the_gateway_refuses(path, body):
    document = describe()
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, {**schema, "components": document["components"]})
