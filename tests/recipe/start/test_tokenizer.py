from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from agar.errors import ConfigError
from agar.ledger.families import Family, family_for
from agar.recipe.start import tokenizer as start
from agar.types import Message, ToolCall, ToolSpec


@pytest.fixture(scope="module")
def family(starting_policy: Path) -> Family:
    return family_for(starting_policy)


@pytest.fixture(scope="module")
def tokenizer(starting_policy: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(starting_policy / "tokenizer.json"))


@given(text=st.text())
def test_any_text_round_trips(tokenizer: tokenizers.Tokenizer, text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("text", ["0", "00", "47", "1234567890", "box 47\ngold 83", "x1y22z"])
def test_digits_are_never_merged(tokenizer: tokenizers.Tokenizer, text: str) -> None:
    pieces = tokenizer.encode(text, add_special_tokens=False).tokens
    assert sum(piece in set("0123456789") for piece in pieces) == sum(c.isdigit() for c in text)


def test_every_id_below_the_vocabulary_size_has_a_text(tokenizer: tokenizers.Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == start.VOCAB_SIZE
    assert all(tokenizer.id_to_token(index) is not None for index in range(start.VOCAB_SIZE))


@pytest.mark.parametrize("token", start.ADDED)
def test_control_tokens_and_tags_are_one_id_each(tokenizer: tokenizers.Tokenizer, token: str) -> None:
    assert len(tokenizer.encode(token, add_special_tokens=False).ids) == 1


def test_decoding_for_readers_leaves_out_control_tokens_but_not_tags(tokenizer: tokenizers.Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|><tool_call>x</tool_call><|im_end|>", add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call>x</tool_call>"


def test_a_hunt_of_two_boxes_stays_below_eighty_tokens(starting_policy: Path, family: Family) -> None:
    from agar.envs.registry import make

    def look(number: int) -> Message:
        call = ToolCall(id="call_0", name="sh", arguments={"command": f"cat {number}"})
        return Message(role="assistant", tool_calls=(call,))

    messages = [
        Message(role="system", content="Find the gold."),
        Message(role="user", content="Start at 47."),
        look(47),
        Message(role="tool", content="box 31", tool_call_id="call_0"),
        look(31),
        Message(role="tool", content="gold 29", tool_call_id="call_0"),
        Message(role="assistant", content="29"),
    ]
    ids, taught = family.transcript(messages, make("Hunt-v0", sandbox={"backend": "fake"}).tools)
    assert len(ids) < 80
    assert taught.sum() == 2 * 7 + 3  # <tool_call>, opening, two digits, closing, </tool_call>, end; two digits, end


def test_transformers_renders_the_prompt_to_the_familys_ids(starting_policy: Path, family: Family) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(starting_policy)
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    tool = ToolSpec(name="sh", description="Run a command.", parameters=parameters)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    chat = [{"role": "system", "content": "Find the gold."}, {"role": "user", "content": "Start at 47."}]
    theirs = loaded.apply_chat_template(
        chat,
        tools=[{"type": "function", "function": function}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    ours = family.render([Message(role=m["role"], content=m["content"]) for m in chat], [tool])  # type: ignore[arg-type]
    assert theirs == ours.tolist()
    assert (loaded.eos_token, loaded.pad_token, len(loaded)) == ("<|im_end|>", "<|endoftext|>", 512)


def test_building_twice_gives_the_same_tokenizer(starting_policy: Path, transcripts: list[str]) -> None:
    built = start.build(transcripts)
    assert built.to_str() == tokenizers.Tokenizer.from_file(str(starting_policy / "tokenizer.json")).to_str()


def test_no_token_reaches_from_the_prompt_into_the_reply() -> None:
    built = start.build(["<|im_start|>assistant\nThe answer<|im_end|>"] * 50)
    assert not [token for token in built.get_vocab() if "assistantĊT" in token]


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 265"):
        start.build(["text"], vocab_size=256)


def test_training_on_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one transcript"):
        start.build([])


_TEXTS = ["<|im_start|>user\nWhich module has `dedent`?<|im_end|>", "<answer>`textwrap`</answer><|im_end|>"] * 20


def pieces(tokenizer: tokenizers.Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([index]) for index in tokenizer.encode(text, add_special_tokens=False).ids]


@pytest.mark.parametrize("before", ["", "has ", '{"query":"', "x"])
@pytest.mark.parametrize("behind", ["", "?", '"}', "` `"])
def test_a_quoted_name_is_spelt_the_same_wherever_it_stands(before: str, behind: str) -> None:
    for names in ([], ["dedent"]):
        tokenizer = start.build(_TEXTS, names=names)
        spelt = pieces(tokenizer, "`dedent`")
        found = pieces(tokenizer, f"{before}`dedent`{behind}")
        assert any(found[at : at + len(spelt)] == spelt for at in range(len(found)))


def test_a_name_that_is_given_is_one_token_and_no_other_gains_by_it() -> None:
    tokenizer = start.build(_TEXTS, names=["dedent", "os.path", "naïve"])
    for name in ("dedent", "os.path", "naïve"):
        assert pieces(tokenizer, f"`{name}`") == [f"`{name}`"]
    assert pieces(tokenizer, "dedent") != ["dedent"]
    assert tokenizer.get_vocab_size() == start.VOCAB_SIZE


def test_names_need_room_beside_the_bytes() -> None:
    with pytest.raises(ConfigError, match="bytes, special tokens and names"):
        start.build(_TEXTS, names=[f"name{letter}" for letter in map(chr, range(0x4E00, 0x5000))])
