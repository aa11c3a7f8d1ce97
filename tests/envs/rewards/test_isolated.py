"""A grader of one's own that may hang."""

import pytest

from agar.envs.rewards import isolated
from agar.errors import ConfigError, EnvError

GRADER = """
import os, time
def score(told):
    said = told.reply
    if said == "hang":
        time.sleep(60)
    if said == "die":
        os._exit(1)
    if said == "raise":
        raise ValueError("no such thing")
    if said == "eat":
        bytearray(1 << 31)
    print("grading")
    return said == told.task.payload["answer"]
"""


@pytest.fixture
def grader(tmp_path, monkeypatch):
    (tmp_path / "own_grader.py").write_text(GRADER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_grader:score"


def test_it_grades_and_whatever_it_does_wrong_leaves_the_episode_out(grader, told):
    score = isolated(grader, timeout_s=20.0, workers=1, memory_mib=2048)
    assert score(told("yes", answer="yes")) == 1.0
    assert score(told("no", answer="yes")) == 0.0
    for reply, said in (
        ("raise", "own_grader:score of task k raised ValueError: no such thing"),
        ("die", "own_grader:score of task k ended its process"),
        ("eat", "raised MemoryError"),
    ):
        with pytest.raises(EnvError, match=said):
            score(told(reply, answer="yes"))
    assert score(told("yes", answer="yes")) == 1.0


def test_one_that_hangs_is_ended(grader, told):
    score = isolated(grader, timeout_s=0.5)
    with pytest.raises(EnvError, match=r"gave nothing within 0\.5 s"):
        score(told("hang", answer="yes"))


@pytest.mark.parametrize(
    ("name", "settings"), [("x", {}), (":x", {}), ("a:b", {"workers": 0}), ("a:b", {"timeout_s": 0})]
)
def test_settings_that_cannot_be_are_refused(name, settings):
    with pytest.raises(ConfigError, match="isolated"):
        isolated(name, **settings)


def test_a_grader_that_is_not_there_says_so(told):
    with pytest.raises(EnvError, match="no_such_module:x cannot be imported: ModuleNotFoundError"):
        isolated("no_such_module:x")(told("yes"))
