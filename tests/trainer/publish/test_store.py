from contextlib import ExitStack

import pytest

from agar.trainer.publish.store import LOCK, VersionStore


@pytest.fixture
def open_store(tmp_path):
    """Makes stores below a parent, by default the test's own folder, and closes them."""
    with ExitStack() as stack:

        def make(*, policy="a", keep=2, parent=tmp_path):
            store = VersionStore(parent=parent, run_dir=tmp_path / "run", policy=policy, keep=keep)
            stack.callback(store.close)
            return store

        yield make


def versions(store):
    return sorted(path.name for path in store.root.iterdir())


def test_the_newest_versions_stay(open_store):
    store = open_store()
    for version in (0, 1, 9, 10):
        (store.directory(version) / "model.safetensors").write_text("x")
        store.prune()
    assert versions(store) == ["v000009", "v000010"]


def test_a_load_of_an_earlier_step_keeps_what_is_published_after_it(open_store):
    store = open_store()
    for version in (20, 21, 22):
        store.directory(version)
    for version in (10, 11, 12, 12):
        store.directory(version)
        store.prune()
        assert f"v{version:06d}" in versions(store)
    assert versions(store) == ["v000011", "v000012"]


def test_runs_that_share_a_directory_keep_their_own_versions(open_store, tmp_path):
    one, other = open_store(keep=1), open_store(keep=1)
    for version, weights in ((3, "one"), (4, "one's")):
        (one.directory(version) / "model.safetensors").write_text(weights)
    for version, weights in ((4, "other"), (5, "other's")):
        (other.directory(version) / "model.safetensors").write_text(weights)
    one.prune()
    other.prune()
    assert (one.root / "v000004" / "model.safetensors").read_text() == "one's"
    assert (other.root / "v000005" / "model.safetensors").read_text() == "other's"
    one.close()
    assert versions(other) == ["v000005"]
    other.close()
    assert not list(tmp_path.iterdir())


def test_a_version_that_was_begun_before_starts_empty(open_store):
    store = open_store()
    (store.directory(3) / "half").write_text("x")
    assert not list(store.directory(3).iterdir())


@pytest.mark.parametrize("given", [True, False])
def test_what_was_published_goes_with_the_store(open_store, tmp_path, given):
    store = open_store(parent=tmp_path if given else None)
    directory = store.directory(1)
    store.close()
    assert not directory.exists()
    assert not store.root.parent.exists()


def test_what_a_dead_process_left_is_swept(open_store, tmp_path):
    alive = open_store()
    alive.directory(1)
    dead = tmp_path / "agar-versions-dead"
    (dead / "a" / "v000001").mkdir(parents=True)
    (dead / LOCK).touch()
    open_store(policy="b").directory(1)
    assert not dead.exists()
    assert alive.root.is_dir()
