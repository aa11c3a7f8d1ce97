"""Whatever comes in, nothing but a refusal in the caller's dialect goes out, and the record stays whole.

Requests are drawn from the gateway's own OpenAPI document and then broken: values of other kinds, missing and foreign
fields, depth, bytes that are no JSON, other content types and methods. They go over a real connection.
"""

import asyncio
import copy
import json
from collections import Counter
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.rollout.gateway.conftest import trace_of

from agar.ledger.config import RecordPolicy
from agar.ledger.families import family_for
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.gateway.openapi import describe
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling, ToolCall

DOCUMENT = describe()
DEFINITIONS = DOCUMENT["components"]["schemas"]
BODIES = {
    path: methods["post"]["requestBody"]["content"]["application/json"]["schema"]
    for path, methods in DOCUMENT["paths"].items()
    if "post" in methods
}
REQUESTS_PER_SESSION = 50
EXAMPLES = 5000 if settings.default.max_examples >= 5000 else 500
ASK = {"role": "user", "content": "Start."}
GOOD = {
    "/v1/chat/completions": {"messages": [ASK]},
    "/v1/responses": {"input": "Start."},
    "/v1/messages": {"messages": [ASK], "max_tokens": 8},
}


# ------------------------------------------------------------------------------------- values of a JSON schema

TEXT = st.sampled_from(
    ["", "sh", "x", "é\u2028", "<|im_end|>", "<tool_call>", "{}", '{"a":1}', "[1]", "call_0_0", "msg_"]
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
KNOWN: dict[str, st.SearchStrategy[Any]] = {}


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, as far as pydantic writes schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in KNOWN:
            KNOWN[name] = st.deferred(lambda: values(DEFINITIONS[name]))
            KNOWN[name] = values(DEFINITIONS[name])
        return KNOWN[name]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return st.one_of([values(option) for option in schema[choice]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        fields = {name: values(inner) for name, inner in schema.get("properties", {}).items()}
        required = {name: fields.pop(name) for name in schema.get("required", ())}
        return st.fixed_dictionaries(required, optional=fields | {"unheard": ANY})
    if kind == "array":
        return st.lists(values(schema.get("items", {})), max_size=min(3, schema.get("maxItems", 3)))
    if kind == "string":
        return TEXT.filter(lambda text: len(text) >= schema.get("minLength", 0))
    if kind == "integer":
        return st.integers(schema.get("minimum", -3), min(schema.get("maximum", 3), 3))
    return {"number": st.floats(-2, 2), "boolean": st.booleans(), "null": st.none()}.get(kind, ANY)


# ---------------------------------------------------------------------------------------------- broken requests


def deep(depth: int, *, lists: bool) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        3.5,
        2**70,
        1e308,
        float("nan"),
        "",
        "\ud800",
        "\x00",
        "x" * 20_000,
        [],
        {},
        [None],
        [[]],
        {"type": []},
        {"type": "text"},
        {"role": "assistant"},
        deep(60, lists=False),
        deep(150, lists=True),
        deep(300, lists=False),
        {"$ref": "#"},
    ]
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in inner for place in places(item, (*at, key)))]


@st.composite
def broken(draw, value: Any) -> Any:
    """The value with something in it deleted, doubled, renamed or of another kind."""
    value = copy.deepcopy(value)
    at = draw(st.sampled_from(places(value)))
    if not at:
        return draw(ODD) if draw(st.integers(0, 9)) == 0 else value
    inside = value
    for key in at[:-1]:
        inside = inside[key]
    how = draw(st.sampled_from(["odd", "odd", "delete", "double", "rename"]))
    if how == "odd":
        inside[at[-1]] = draw(ODD | ANY)
    elif how == "delete":
        del inside[at[-1]]
    elif how == "double" and isinstance(inside, list):
        inside.insert(at[-1], inside[at[-1]])
    elif isinstance(inside, dict):
        inside[draw(TEXT)] = inside.pop(at[-1])
    return value


@st.composite
def bodies(draw, path: str) -> bytes:
    value = draw(values(BODIES[path]))
    for _ in range(draw(st.integers(0, 3))):
        value = draw(broken(value))
    body = json.dumps(value).encode()
    how = draw(st.sampled_from(["whole"] * 9 + ["cut", "byte", "bytes", "text"]))
    if how == "cut":
        return body[: draw(st.integers(0, len(body)))]
    if how == "byte":
        at = draw(st.integers(0, len(body)))
        return (
            body[:at] + draw(st.sampled_from([b"\xff", b"\x00", b"\xc3\x28", b"}", b",", b"\xed\xa0\x80"])) + body[at:]
        )
    if how == "bytes":
        return draw(st.binary(max_size=64))
    return body.decode().encode(draw(st.sampled_from(["utf-16", "utf-8-sig"]))) if how == "text" else body


@st.composite
def requests(draw, path: str) -> dict[str, Any]:
    """A request to a path as httpx takes it."""
    method = draw(st.sampled_from(["POST"] * 15 + ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"]))
    headers = {
        "content-type": draw(st.sampled_from(["application/json"] * 9 + ["text/plain", "", "application/x+json"]))
    }
    if draw(st.booleans()):
        headers["anthropic-version"] = "2023-06-01"
    return {"method": method, "headers": headers, "content": draw(bodies(path))}


# ----------------------------------------------------------------------------------------------- the other side


class Target:
    """A gateway and the session that is under attack now; another takes over now and then."""

    def __init__(self, runner: asyncio.Runner, gateway: Gateway, client: httpx.AsyncClient, check: Any) -> None:
        self.runner, self.gateway, self.client, self.check = runner, gateway, client, check
        self.statuses: Counter[int] = Counter()
        self.bystander = self.open()
        self.session = self.open()

    def open(self, **fields: Any) -> Any:
        record = RecordPolicy(output_form="ignore")
        return self.gateway.open(policy="main", sampling=Sampling(max_tokens=8), record=record, **fields)

    def send(self, *, path: str, **request: Any) -> httpx.Response:
        url = self.session.path_url.removesuffix("/v1") + path
        reply = self.runner.run(self.client.request(url=url, **request))
        self.statuses[reply.status_code] += 1
        if self.statuses.total() % REQUESTS_PER_SESSION == 0:
            self.turn_over()
        return reply

    def turn_over(self) -> None:
        """The session still answers, and its record is sound."""
        for path, body in GOOD.items():
            url = self.session.path_url.removesuffix("/v1") + path
            assert self.runner.run(self.client.post(url, json=body)).status_code == 200
        sealed = self.session.seal()
        assert sealed.open_calls == 0
        self.check(sealed)
        trace = trace_of(sealed)
        assert Trace.load(trace.dump()).dump() == trace.dump()
        assert self.bystander._forest.nodes == []
        self.session = self.open()


@pytest.fixture(scope="module")
def target(tmp_path_factory, trained):
    family = family_for(write_toy_model(tmp_path_factory.mktemp("model")))
    call = ToolCall(id="", name="sh", arguments={"command": "cat 47"})
    ids, mask = family.transcript([Message(role="assistant", content="Look.", tool_calls=(call,))])
    gateway = Gateway(engines={"main": ToyEngine(lambda prompt: ids[mask])}, families={"main": family})
    with asyncio.Runner() as runner:
        runner.run(gateway.__aenter__())
        client = httpx.AsyncClient(timeout=30.0)
        try:
            yield Target(runner, gateway, client, trained)
        finally:
            runner.run(client.aclose())
            runner.run(gateway.__aexit__())


def refused_in_its_dialect(reply: httpx.Response, path: str, headers: dict[str, str]) -> None:
    error = reply.json()["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    if path.startswith("/v1/messages") or (reply.status_code in (404, 405) and "anthropic-version" in headers):
        assert reply.json()["type"] == "error"
        assert error["type"].endswith("_error") or error["type"] == "request_too_large"
    else:
        assert {"message", "type", "param", "code"} == set(error)
        assert error["type"] == "invalid_request_error"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(BODIES))
def test_broken_requests_are_refused_and_break_nothing(target, path):
    @settings(
        max_examples=EXAMPLES // len(BODIES),
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
    )
    @given(request=requests(path))
    def drive(request: dict[str, Any]) -> None:
        reply = target.send(path=path, **request)
        assert reply.status_code in {200, 400, 405, 415}, reply.text
        if request["method"] == "HEAD":
            return
        if reply.status_code != 200:
            refused_in_its_dialect(reply, path, request["headers"])
        elif reply.headers["content-type"] == "application/json":
            assert reply.json()
        else:
            assert reply.text.endswith("\n\n")

    target.statuses.clear()
    drive()
    target.turn_over()
    sent = target.statuses.total()
    assert sent >= EXAMPLES // len(BODIES)
    least = 0.02 * sent if sent >= 1000 else 1  # a share of few is a matter of luck
    for status in (200, 400):  # otherwise the requests are not what they are meant to be
        assert target.statuses[status] >= least, target.statuses
