"""What becomes of the tests of Docker sandboxes where there is no engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.sandbox.conftest import DOCKER_VARIABLE, engine_for_tests
from tests.sandbox.dockerd import NoEngineError


@contextmanager
def missing() -> Iterator[Path]:
    raise NoEngineError("dockerd does not start here: no overlay2")
    yield


@contextmanager
def present() -> Iterator[Path]:
    yield Path("/run/engine.sock")


def asked(monkeypatch: pytest.MonkeyPatch, wanted: str | None) -> None:
    if wanted is None:
        monkeypatch.delenv(DOCKER_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(DOCKER_VARIABLE, wanted)


@pytest.mark.parametrize("wanted", [None, "auto"])
def test_without_an_engine_they_are_skipped_with_the_reason(monkeypatch, wanted):
    asked(monkeypatch, wanted)
    with pytest.raises(pytest.skip.Exception, match="no overlay2"), engine_for_tests(missing):
        pass


def test_where_an_engine_is_required_they_fail_with_the_reason(monkeypatch):
    asked(monkeypatch, "required")
    said = r"no overlay2 \(AGAR_TEST_DOCKER is required"
    with pytest.raises(pytest.fail.Exception, match=said), engine_for_tests(missing):
        pass


@pytest.mark.parametrize("wanted", [None, "auto", "required"])
def test_one_that_runs_is_used(monkeypatch, wanted):
    asked(monkeypatch, wanted)
    with engine_for_tests(present) as path:
        assert path == Path("/run/engine.sock")


def test_another_word_is_refused_before_anything_starts(monkeypatch):
    asked(monkeypatch, "yes")
    with pytest.raises(pytest.fail.Exception, match="'yes': set it to auto or required"), engine_for_tests(present):
        pass
