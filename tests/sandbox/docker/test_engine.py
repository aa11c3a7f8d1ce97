"""What is left of dead owners is swept; images are found, made, refused."""

import asyncio
import tarfile
from pathlib import Path

import pytest

from agar.errors import SandboxError, UnsupportedPlatformError
from agar.sandbox import create
from agar.sandbox.docker import engine as module
from agar.sandbox.docker.attached import refused
from agar.sandbox.docker.engine import OWNER, Engine, default_socket
from agar.sandbox.docker.hardening import container
from agar.sandbox.docker.image import HostTree
from agar.sandbox.keeper import identity


def test_the_engines_socket_is_found_by_custom(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert str(default_socket()) == "/var/run/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere/docker.sock")
    assert str(default_socket()) == "/somewhere/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(UnsupportedPlatformError, match="expected unix://PATH"):
        default_socket()


async def test_no_engine_is_named_with_the_remedy(tmp_path):
    with pytest.raises(UnsupportedPlatformError, match="start one, or set `engine`"):
        await Engine(tmp_path / "nothing").call("GET", "/_ping")


class Refusing(Engine):
    """Refuses to remove a container with these statuses, one after the other; what is asked for is kept."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(Path("/nowhere"))
        self.statuses, self.asked = list(statuses), []

    async def call(self, method, path, **_):
        self.asked.append(method)
        if method == "DELETE" and self.statuses:
            raise refused(self.statuses.pop(0), f"{method} {path}", "could not kill: it is not running")


@pytest.mark.parametrize("statuses", [(), (404,), (409,), (500,), (500, 500, 404)])
async def test_a_container_that_ends_while_it_is_killed_is_removed(statuses, monkeypatch):
    monkeypatch.setattr(module, "_REMOVED_AGAIN_S", (0.0, 0.0, 0.0))
    engine = Refusing(*statuses)
    await engine.remove("it")
    assert engine.statuses == []
    assert engine.asked == ["DELETE"] * (statuses.count(500) + 1) + ["POST"]


@pytest.mark.parametrize(("statuses", "asked"), [((500,) * 9, 4), ((400,), 1)])
async def test_an_engine_that_never_removes_it_is_an_error(statuses, asked, monkeypatch):
    monkeypatch.setattr(module, "_REMOVED_AGAIN_S", (0.0, 0.0, 0.0))
    engine = Refusing(*statuses)
    with pytest.raises(SandboxError, match="could not kill"):
        await engine.remove("it")
    assert engine.asked == ["DELETE"] * asked


@pytest.mark.sandbox
async def test_containers_of_the_dead_are_swept_and_others_left(docker_socket, docker_spec):
    engine = Engine(docker_socket)
    image = await engine.image(None)
    user, space = identity().split("-")[1:3]
    owners = {
        "dead": f"agar-{user}-{space}-1-12345",
        "another user's": f"agar-{int(user) + 1}-{space}-1-12345",
        "alive": identity(),
        "somebody's own": "nonsense",
    }
    made = {}
    for name, owner in owners.items():
        body = container(docker_spec, image=image, labels={OWNER: owner})
        made[name] = (await engine.call("POST", "/containers/create", body=body))["Id"]
    try:
        assert await engine.sweep() == 1
        assert await engine.sweep() == 0, "once is enough"
        listed = {item["Id"] for item in await engine.call("GET", "/containers/json?all=true")}
        assert {name for name, container_id in made.items() if container_id in listed} == set(owners) - {"dead"}
    finally:
        for container_id in made.values():
            await engine.remove(container_id)


@pytest.mark.sandbox
async def test_a_tarball_of_a_root_file_system_is_an_image(docker_spec, tmp_path):
    archive = tmp_path / "root.tar"
    with archive.open("wb") as file:
        await asyncio.to_thread(HostTree(["dash", "coreutils", "tar", "findutils"]).write, file)
    async with create(docker_spec.model_copy(update={"image": str(archive)})) as sandbox:
        await sandbox.write("f", "x")
        result = await sandbox.exec("cat f; command -v git python3")
        assert (result.stdout, result.code) == ("x", 127)


@pytest.mark.sandbox
async def test_a_tarball_that_is_none_is_refused(docker_spec, tmp_path):
    (tmp_path / "root.tar").write_bytes(b"no tarball" * 100)
    with pytest.raises(SandboxError, match="refused"):
        await create(docker_spec.model_copy(update={"image": str(tmp_path / "root.tar")})).exec("true")


@pytest.mark.sandbox
async def test_an_image_without_a_shell_is_our_failure_by_name(docker_spec, tmp_path):
    with tarfile.open(tmp_path / "empty.tar", "w") as archive:
        member = tarfile.TarInfo("work")
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    with pytest.raises(SandboxError, match="/bin/sh"):
        await create(docker_spec.model_copy(update={"image": str(tmp_path / "empty.tar")})).exec("true")
