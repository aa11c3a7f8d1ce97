"""A service in-process: the same tools, no server."""

import pytest

from agar.errors import SandboxError, ToolError


async def test_an_episode_has_its_own_and_leaves_nothing(service):
    async with service.session() as one, service.session() as two:
        assert await one.call("count", {"by": 2}, timeout_s=5) == "2"
        assert await two.call("count", {"by": 1}, timeout_s=5) == "1"
        names = ["count", "refuse", "mumble", "burn", "break_down", "crash", "wait"]
        assert [spec.name for spec in one.specs] == names
    assert service.counts == {}
    assert service.opened


async def test_errors_say_whose_they_are(service):
    async with service, service.session() as tools:
        with pytest.raises(ToolError, match="not today"):
            await tools.call("refuse", {}, timeout_s=5)
        with pytest.raises(ToolError, match="no tool 'x'; there are: count, refuse"):
            await tools.call("x", {}, timeout_s=5)
        with pytest.raises(SandboxError):
            await tools.call("break_down", {}, timeout_s=5)
    assert not service.opened
