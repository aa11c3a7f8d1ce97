from agar.trainer.publish.store import VersionStore


def test_the_newest_versions_stay(tmp_path):
    store = VersionStore(parent=tmp_path, run_dir=tmp_path, policy="a", keep=2)
    for version in (0, 1, 9, 10):
        (store.directory(version) / "model.safetensors").write_text("x")
        store.prune()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["v000009", "v000010"]


def test_a_resume_from_an_earlier_step_keeps_what_it_publishes(tmp_path):
    killed = VersionStore(parent=tmp_path, run_dir=tmp_path, policy="a", keep=2)
    for version in (20, 21, 22):
        killed.directory(version)
    resumed = VersionStore(parent=tmp_path, run_dir=tmp_path, policy="a", keep=2)
    for version in (10, 11, 12, 12):
        resumed.directory(version)
        resumed.prune()
        assert (tmp_path / "a" / f"v{version:06d}").is_dir()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["v000011", "v000012"]


def test_a_version_that_was_begun_before_starts_empty(tmp_path):
    store = VersionStore(parent=tmp_path, run_dir=tmp_path, policy="a", keep=2)
    (store.directory(3) / "half").write_text("x")
    assert not list(store.directory(3).iterdir())


def test_a_directory_of_the_stores_own_choosing_goes_with_it(tmp_path):
    store = VersionStore(parent=None, run_dir=tmp_path, policy="a", keep=2)
    directory = store.directory(1)
    store.close()
    assert not directory.exists()
    assert not store.root.parent.exists()


def test_a_given_directory_stays(tmp_path):
    store = VersionStore(parent=tmp_path, run_dir=tmp_path, policy="a", keep=2)
    directory = store.directory(1)
    store.close()
    assert directory.is_dir()


def test_what_a_dead_process_left_in_shared_memory_is_swept(tmp_path, monkeypatch):
    from agar.trainer.publish import store as module

    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path)
    alive = VersionStore(parent=None, run_dir=tmp_path, policy="a", keep=2)
    alive.directory(1)
    dead = tmp_path / "agar-versions-dead"
    (dead / "a" / "v000001").mkdir(parents=True)
    (dead / module.LOCK).touch()
    other = VersionStore(parent=None, run_dir=tmp_path, policy="b", keep=2)
    other.directory(1)
    assert not dead.exists()
    assert alive.root.is_dir()
    alive.close()
    other.close()
