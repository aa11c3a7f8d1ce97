from agar.ledger.families import family_for
from agar.ledger.families.chatml import ChatML
from agar.ledger.tokenizer import Tokenizer
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling

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
