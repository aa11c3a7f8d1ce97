"""What a cut reply comes to: complete where it ends in a stop, else to be gone on with."""

import numpy as np
import orjson
import pytest

from agar.rollout.engines.call import Call, served_by
from agar.rollout.engines.streamed import StreamedReply
from agar.types import Finish, Sampling

PROMPT = np.array([1, 2, 3], dtype=np.int32)


def reply(*ids, text="", finish="abort", spans=()):
    """A reply in the shape of SGLang 0.5.23."""
    meta = {
        "finish_reason": {"type": finish},
        "weight_version": "4",
        "weight_versions": [{"version": str(v), "start": start, "end": end} for v, start, end in spans],
        "output_token_logprobs": [[-0.5, token, None] for token in ids],
        "completion_tokens": len(ids),
    }
    return {"text": text, "meta_info": meta}


def call(**changes):
    return Call(PROMPT, Sampling(**{"max_tokens": 8, "stop_token_ids": (9, 10), **changes}))


@pytest.mark.parametrize("spans", [(), [(3, 0, 1), (4, 1, 3)], [(3, 0, 3), (4, 3, 3)]])
@pytest.mark.parametrize("schema", [None, "{}"])
def test_a_reply_that_was_cut_behind_its_stop_token_is_complete(spans, schema):
    """SGLang samples one token more after an abort, and says "abort" whatever that token is."""
    asked = call(json_schema=schema)
    assert asked.take(reply(7, 8, 9, spans=spans), None) == ""
    sampled = asked.sampled()
    assert (sampled.token_ids.tolist(), sampled.finish) == ([7, 8, 9], Finish.STOP)


@pytest.mark.parametrize(
    ("named", "spans", "served"),
    [
        ("4", [], True),
        (4, [], True),
        ("4", ["4", 4], True),
        ("4", ["3", "4"], False),
        ("4", ["4", None], False),
        ("3", [], False),
        ("default", [], False),
        (None, [], False),
    ],
)
def test_a_reply_is_of_a_version_if_all_that_it_names_is_that(named, spans, served):
    meta = {"weight_version": named, "weight_versions": [{"version": span} for span in spans]}
    assert served_by({"meta_info": meta}, 4) == served
    assert not served_by({}, 4)


def test_a_stop_token_in_a_later_piece_ends_the_call_too():
    asked = call()
    assert asked.take(reply(7, 8), 4) == "aborted"
    assert asked.take(reply(), 4) == "aborted"
    assert asked.take(reply(6, 10), 4) == ""
    assert (asked.sampled().token_ids.tolist(), asked.sampled().finish) == ([7, 8, 6, 10], Finish.STOP)


def test_a_stop_text_that_was_cut_behind_is_complete():
    asked = call(stop=("END",))
    assert asked.take(reply(7, text="no EN"), 4) == "aborted"
    assert asked.take(reply(8, text=" but END"), 4) == ""
    assert asked.sampled().finish is Finish.STOP


def test_a_cut_reply_without_a_stop_goes_on_and_one_at_its_limit_does_not():
    asked = call(max_tokens=3)
    assert asked.take(reply(7, 8), 4) == "aborted"
    assert asked.take(reply(8), 4) == ""
    assert asked.sampled().finish is Finish.LENGTH


@pytest.mark.parametrize("incremental", [True, False])
def test_a_stream_that_was_cut_behind_its_stop_text_is_complete(incremental):
    stream = StreamedReply(4, lambda ids: None)
    first, second = reply(7, text="a EN"), reply(8, text="D") if incremental else reply(7, 8, text="a END")
    first["meta_info"]["finish_reason"] = None
    second["meta_info"]["completion_tokens"] = 2
    for step in (first, second):
        stream.feed(b"data: " + orjson.dumps(step) + b"\n\n")
    asked = call(stop=("END",))
    assert asked.take(stream.whole(), 4) == ""
    assert (asked.sampled().token_ids.tolist(), asked.sampled().finish) == ([7, 8], Finish.STOP)
