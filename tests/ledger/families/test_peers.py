"""Other programs on the same conversations: renderers, miles-tito-tokenizers, SGLang's parsers.

What they said is recorded in `peers/`, with the script that made it; the engine's own parsers are asked again where the
engine is installed. Where they differ from a family it is known, why, and that they still do.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.ledger.families.peers.cases import family_over, write

from agar.errors import LedgerError
from agar.ledger.families.conversations import CONVERSATIONS, Conversation
from agar.types import Finish

PEERS = Path(__file__).parent / "peers"
BY_NAME = {conversation.name: conversation for conversation in CONVERSATIONS}
ANY = "any conversation"
DIFFERENCES = {
    # The template writes `<think>` after a question only; renderers also writes it after tool results.
    ("renderers", "deepseek-r1-0528", "prompt", ANY),
    ("renderers", "deepseek-r1-0528", "bridged", ANY),
    # The template forgets the end of a single call and puts a line between two; renderers writes neither.
    ("renderers", "deepseek-v3", "prompt", ANY),
    ("renderers", "deepseek-v3", "bridged", ANY),
    # The model sampled the mark of one speaker and another speaks. renderers writes two marks, which no template does;
    # miles takes the sampled one away, so that the prompt does not begin with what was sampled.
    ("renderers", "glm-4.5", "bridged", "a call that is answered by a user"),
    ("renderers", "glm-4.5", "bridged", "a system message in the middle"),
    ("renderers", "glm-4.7", "bridged", "a call that is answered by a user"),
    ("renderers", "glm-4.7", "bridged", "a system message in the middle"),
    ("miles", "glm-4.7", "bridged", "a call that is answered by a user"),
    # The template writes Python's True; renderers reads it as a string although the schema says boolean.
    ("renderers", "qwen3.5-think", "calls", ANY),
    # The model begins with a line end before `<think>`; SGLang's reasoning then keeps the mark.
    ("sglang", "glm-4.5", "reasoning", ANY),
    # Asked without its reasoning parser, since the prompt has closed the reasoning.
    ("sglang", "deepseek-v3.1", "reasoning", ANY),
    ("sglang", "deepseek-v3.1", "text", ANY),
}


def known(peer: str, name: str, field: str, conversation: str) -> bool:
    return bool({(peer, name, field, conversation), (peer, name, field, ANY)} & DIFFERENCES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def ours(folder: Path, name: str, conversation: Conversation) -> dict:
    family = family_over(folder, name)
    at = max(i for i, message in enumerate(conversation.messages) if message.role == "assistant")
    tools = conversation.tools if family.template.takes_tools else ()
    prompt = family.render(conversation.messages[:at], tools)
    reply = family.reply(conversation.messages[at], prompt=prompt)
    sampled = np.concatenate([prompt, reply])
    try:
        bridge = family.bridge(sampled, Finish.STOP, conversation.messages[at + 1 :])
        whole = family.tokenizer.decode(family.render(conversation.messages, tools))
    except LedgerError:
        bridge, whole = None, None
    turn = family.parse(reply, conversation.tools, prompt=prompt)
    return {
        "prompt": whole,
        "bridged": None if bridge is None else family.tokenizer.decode(np.concatenate([sampled, bridge])),
        "text": turn.text,
        "reasoning": turn.reasoning,
        "calls": [[call.name, dict(call.arguments)] for call in turn.tool_calls],
    }


def read(peer: str, folder: Path = PEERS) -> dict:
    return json.loads((folder / f"{peer}.json").read_text("utf-8"))


def bare(said: dict) -> dict:
    """Outer white space does not count; no reasoning is as good as empty reasoning."""
    return {
        field: (value.strip() or None) if field in {"text", "reasoning"} and value is not None else value
        for field, value in said.items()
    }


def differences(folder: Path, peer: str, name: str) -> Iterator[tuple[str, str, object, object]]:
    for case, theirs in read(peer)[name].items():
        mine, theirs = bare(ours(folder, name, BY_NAME[case])), bare(theirs)
        for field in theirs.keys() & mine.keys():
            if mine[field] != theirs[field]:
                yield field, case, mine[field], theirs[field]


@pytest.mark.parametrize(
    ("peer", "name"), [(peer, name) for peer in ("renderers", "miles", "sglang") for name in read(peer)]
)
def test_a_family_says_what_others_say_but_where_it_is_known_not_to(folder, peer, name):
    found = list(differences(folder, peer, name))
    assert [each for each in found if not known(peer, name, *each[:2])] == []
    expected = {(field, case) for p, n, field, case in DIFFERENCES if (p, n) == (peer, name)}
    seen = {(field, case) for field, case, *_ in found} | {(field, ANY) for field, *_ in found}
    assert expected <= seen, f"no longer different: {expected - seen}"


def test_every_peer_was_asked_for_every_shared_family():
    assert set(read("sglang")) >= {"qwen2.5", "qwen3", "qwen3.5-think", "glm-4.5", "glm-4.7", "llama-layout"}
    assert set(read("miles")) == {"qwen3", "qwen3.5-think", "glm-4.7"}
    assert len(read("renderers")) == 7
    assert sum(len(cases) for peer in ("renderers", "miles", "sglang") for cases in read(peer).values()) > 150


@pytest.mark.sglang
@pytest.mark.timeout(300)
def test_the_installed_engine_still_says_what_was_recorded(engine_python, tmp_path):
    from agar.rollout.engines.cpu import cpu_environment

    write(tmp_path)
    words = [engine_python, str(PEERS / "record.py"), "sglang", str(tmp_path), str(tmp_path)]
    done = subprocess.run(words, env=os.environ | cpu_environment(), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    assert read("sglang", tmp_path) == read("sglang")
    assert sys.executable != engine_python
