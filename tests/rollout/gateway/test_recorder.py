import numpy as np
import pytest
from tests.ledger.families.conftest import HERE, TOKENS, write_model

from agar.errors import LedgerError
from agar.ledger.families import family_for
from agar.ledger.families.chatml import ChatML
from agar.ledger.tokenizer import Tokenizer
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.rollout.gateway.server import Gateway
from agar.types import ImagePart, Message, Sampling

TURNS = 128


class Counting(Tokenizer):
    """Counts the characters that it is asked to encode."""

    characters = 0

    def encode(self, text, *, special=False):
        self.characters += len(text)
        return super().encode(text, special=special)

    def ids_of(self, text):
        self.characters += len(text)
        return super().ids_of(text)


async def test_only_what_is_new_is_encoded_however_long_the_session_has_become(tmp_path):
    model = write_toy_model(tmp_path)
    tokenizer = Counting((model / "tokenizer.json").read_text())
    reply = family_for(model).tokenizer.encode("gold<|im_end|>", special=True)
    gateway = Gateway(engines={"main": ToyEngine(lambda prompt: reply)}, families={"main": ChatML(tokenizer)})
    session = gateway.open(policy="main", sampling=Sampling(max_tokens=8))
    messages = [Message(role="system", content="Find it. " * 30), Message(role="user", content="Start at 0000.")]
    encoded = []
    for turn in range(TURNS):
        before = tokenizer.characters
        said = await session.chat(messages)
        encoded.append(tokenizer.characters - before)
        messages += [said.message(), Message(role="user", content=f"Go on, {turn:04}.")]
    assert len(session.seal().nodes) == TURNS
    assert encoded[0] > 30 * len("Find it. ")
    assert len("Go on, 0000.") < encoded[1] < 3 * len("Go on, 0000.")
    assert set(encoded[1:]) == {encoded[1]}


class Seeing(ToyEngine):
    """Also takes images, and keeps what it was shown with each prompt."""

    async def generate_seeing(self, ids, sampling, *, images, routing_key):
        sampled = await self.generate(ids, sampling, routing_key=routing_key)
        self.shown.append((len(images), list(images)))
        return sampled


@pytest.fixture(scope="module")
def seeing_family(tmp_path_factory):
    template = (HERE / "templates" / "qwen3-vl.jinja").read_text("utf-8")
    return family_for(write_model(tmp_path_factory.mktemp("vl"), template, TOKENS["qwen3-vl"]))


CAT, DOG = (Message(role="user", content=(ImagePart(url=f"data:{name}"),)) for name in ("cat", "dog"))


async def test_the_engine_is_shown_every_image_of_the_path_in_order(seeing_family):
    reply = seeing_family.reply(Message(role="assistant", content="A cat."))
    engine = Seeing(lambda prompt: reply)
    engine.shown = []
    async with Gateway(engines={"main": engine}, families={"main": seeing_family}) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=32))
        messages = [CAT]
        for new in (DOG, Message(role="user", content="Sure?"), None):
            messages += [(await session.chat(messages)).message(), new]
        nodes = session.seal().nodes
    assert [shown for _, shown in engine.shown] == [["data:cat"], *[["data:cat", "data:dog"]] * 2]
    assert [int((prompt == seeing_family.image_token).sum()) for prompt in engine.prompts] == [1, 2, 2]
    assert ["images" in node.sampled.side for node in nodes] == [True, True, False]
    at, length = nodes[1].sampled.side["images"][0]
    assert nodes[1].delta[at : at + length].tolist() == [seeing_family.image_token]
    assert np.array_equal(nodes[0].sampled.token_ids, reply)


async def test_an_engine_that_takes_no_images_is_not_asked(seeing_family):
    async with Gateway(engines={"main": ToyEngine(lambda prompt: [1])}, families={"main": seeing_family}) as gateway:
        session = gateway.open(policy="main", sampling=Sampling())
        with pytest.raises(LedgerError, match="holds 1 images and this engine takes none"):
            await session.chat([CAT])
        assert session.seal().nodes == ()
