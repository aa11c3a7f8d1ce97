"""No address of an image reaches an engine, whatever dialect it comes in."""

import httpx
import pytest
from tests.ledger.families.conftest import HERE, TOKENS, write_model

from agar.ledger.families import family_for
from agar.ledger.toy import ToyEngine
from agar.rollout.gateway.call import BadRequest
from agar.rollout.gateway.images import read_image
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling

PIXEL = "data:image/png;base64,iVBORw0KGgo="
ADDRESSES = [
    "http://evil.test/?d=secret",
    "https://evil.test/a.png",
    "file:///etc/passwd",
    "/etc/passwd",
    "picture.png",
    "",
    "iVBORw0KGgo=",
    "data:image/png,abc",
    "data:text/html;base64,AAAA",
    "data:image/../../etc/x;base64,AAAA",
    "data:image/png;base64,../../secret.png",
    "data:image/png;base64,AAA",
    "data:image/png;base64,AA\u00e9=",
    " " + PIXEL,
]


class Seeing(ToyEngine):
    """Also takes images."""

    async def generate_seeing(self, ids, sampling, *, images, routing_key):
        self.shown.append(list(images))
        return await self.generate(ids, sampling, routing_key=routing_key)


def chat(url):
    return "/chat/completions", {"messages": [{"role": "user", "content": [image_url(url)]}]}


def chat_tool(url):
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    told = {"role": "tool", "tool_call_id": "a", "content": [image_url(url)]}
    return "/chat/completions", {"messages": [{"role": "user", "content": "Look."}, said, told]}


def image_url(url):
    return {"type": "image_url", "image_url": {"url": url}}


def responses(url):
    return "/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}


def messages(url):
    source = {"type": "url", "url": url}
    if url.startswith("data:image/png;base64,"):  # an engine is told this very text
        source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    content = [{"type": "image", "source": source}]
    return "/messages", {"max_tokens": 32, "model": "m", "messages": [{"role": "user", "content": content}]}


@pytest.fixture(scope="module")
def seeing_family(tmp_path_factory):
    template = (HERE / "templates" / "qwen3-vl.jinja").read_text("utf-8")
    return family_for(write_model(tmp_path_factory.mktemp("vl"), template, TOKENS["qwen3-vl"]))


@pytest.mark.parametrize("asked", [chat, chat_tool, responses, messages])
async def test_only_an_image_in_the_request_reaches_the_engine(seeing_family, asked):
    reply = seeing_family.reply(Message(role="assistant", content="A cat."))
    engine = Seeing(lambda prompt: reply)
    engine.shown = []
    async with Gateway(engines={"main": engine}, families={"main": seeing_family}) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=32))
        headers = {"authorization": f"Bearer {session.id}"}
        async with httpx.AsyncClient(base_url=gateway.base_url, headers=headers) as http:
            for url in ADDRESSES:
                path, body = asked(url)
                refused = await http.post(path, json=body)
                assert (refused.status_code, url, refused.text) == (400, url, refused.text)
            assert (engine.prompts, engine.shown) == ([], [])
            path, body = asked(PIXEL)
            seen = await http.post(path, json=body)
        assert seen.status_code == 200, seen.text
        assert engine.shown == [[PIXEL]]


def test_a_media_type_cannot_smuggle_an_address():
    with pytest.raises(BadRequest, match="must be a data URL"):
        read_image("data:image/png;x=,http://evil.test/;base64,AAAA", "here")
