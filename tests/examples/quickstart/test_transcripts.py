import pytest

from agar.examples.quickstart.transcripts import HUNTERS, texts


def few(**sandbox: object) -> list[str]:
    return texts(HUNTERS.model_copy(update={"trajectories_per_step": 6, "kwargs": {"sandbox": sandbox}}))


@pytest.mark.sandbox
def test_the_scripted_sandbox_gives_the_transcripts_of_the_real_one() -> None:
    real = few(backend="bubblewrap")
    assert any("\ngold " in text for text in real)
    assert any("\nbox " in text for text in real)
    assert few(backend="fake") == real


def test_transcripts_are_the_same_each_time_and_differ_among_themselves() -> None:
    first = few(backend="fake")
    assert few(backend="fake") == first
    assert len(set(first)) > 1


async def test_transcripts_can_be_made_within_a_running_loop() -> None:
    assert len(few(backend="fake")) == 6
