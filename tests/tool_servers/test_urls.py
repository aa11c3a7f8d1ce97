"""Keys in an address do not reach a message."""

import pytest

from agar.envs.rewards.http import post_json
from agar.errors import EnvError, ToolServerError
from agar.tool_servers.link import GRACE_S, Link
from agar.tool_servers.mcp_tools import McpTools
from agar.tool_servers.urls import public, without_keys
from agar.tool_servers.wire import Health

URL = "http://me:s3cret@127.0.0.1:9/mcp?api_key=s3cret#s3cret"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (URL, "http://127.0.0.1:9/mcp"),
        ("https://host/a/b", "https://host/a/b"),
        ("http://[::1]:80/", "http://[::1]:80/"),
        ("not a url", "not a url"),
        ("http://me:s3cret@[::1/mcp", "an address that cannot be read"),
    ],
)
def test_an_address_is_shown_without_what_may_be_a_key(url, told):
    assert public(url) == told


def test_a_text_that_quotes_it_or_its_query_is_masked():
    assert "s3cret" not in without_keys("http://a/?api_key=s3cret", "GET http://a/?api_key=s3cret, /?api_key=s3cret")


async def test_a_tool_server_that_cannot_be_reached_is_named_without_its_key():
    async with Link.to("http://me:s3cret@127.0.0.1:9", headers={}) as link:
        with pytest.raises(ToolServerError, match=r"http://127\.0\.0\.1:9/health") as caught:
            await link.ask("GET", "/health", Health, timeout_s=-GRACE_S + 0.5)
    assert "s3cret" not in str(caught.value)


async def test_an_mcp_server_that_cannot_be_reached_is_named_without_its_key():
    with pytest.raises(ToolServerError, match=r"http://127\.0\.0\.1:9/mcp is no MCP server") as caught:
        async with McpTools(URL).session():
            pass
    assert "s3cret" not in str(caught.value)


async def test_a_reward_server_that_cannot_be_reached_is_named_without_its_key():
    with pytest.raises(EnvError) as caught:
        await post_json(URL, {}, headers={}, timeout_s=1.0, retries=0)
    assert "127.0.0.1:9/mcp" in str(caught.value)
    assert "s3cret" not in str(caught.value)
