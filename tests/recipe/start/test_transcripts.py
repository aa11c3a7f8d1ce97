import pytest

from agar.recipe.start.transcripts import texts
from agar.rollout.sources.config import DemonstrationsConfig


def few(hunts: DemonstrationsConfig, backend: str = "fake") -> list[str]:
    return texts(hunts.model_copy(update={"kwargs": {"sandbox": {"backend": backend}}}), episodes=6)


@pytest.mark.sandbox
def test_the_scripted_sandbox_gives_the_transcripts_of_the_real_one(hunts: DemonstrationsConfig) -> None:
    real = few(hunts, "bubblewrap")
    assert any("\ngold " in text for text in real)
    assert any("\nbox " in text for text in real)
    assert few(hunts, "fake") == real


def test_transcripts_are_the_same_each_time_and_differ_among_themselves(hunts: DemonstrationsConfig) -> None:
    first = few(hunts)
    assert few(hunts) == first
    assert len(set(first)) > 1


async def test_transcripts_can_be_made_within_a_running_loop(hunts: DemonstrationsConfig) -> None:
    assert len(few(hunts)) == 6


def test_they_are_those_of_the_last_phase(hunts: DemonstrationsConfig) -> None:
    last = hunts.phases[0]
    first = last.model_copy(update={"agents": tuple(a.model_copy(update={"kwargs": {}}) for a in last.agents)})
    assert few(hunts.model_copy(update={"phases": (first, last)})) == few(hunts)
