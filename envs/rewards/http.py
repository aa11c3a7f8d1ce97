"""One request to a service that grades, with retries."""

import asyncio
from collections.abc import Mapping
from typing import Any

from agar.errors import EnvError, MissingExtraError, to_install
from agar.tool_servers.urls import public, without_keys

_BACKOFF_S = 0.5


async def post_json(
    url: str, body: Mapping[str, Any], *, headers: Mapping[str, str], timeout_s: float, retries: int
) -> Any:
    """Post JSON and read JSON; what may pass (no connection, 429, 5xx) is tried again, each time after a longer wait.

    Raises:
        EnvError: it failed for good; says what came last.
        MissingExtraError: httpx is not installed.
    """
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError(f"rewards from a service need httpx: {to_install('openai')}") from error
    said = ""
    async with httpx.AsyncClient(timeout=timeout_s, headers=dict(headers), trust_env=False) as client:
        for attempt in range(retries + 1):
            if attempt:
                await asyncio.sleep(_BACKOFF_S * 2 ** (attempt - 1))
            try:
                answer = await client.post(url, json=body)
            except httpx.HTTPError as error:
                said = without_keys(url, repr(error))
                continue
            if answer.status_code == 429 or answer.status_code >= 500:
                said = f"status {answer.status_code}"
                continue
            if answer.is_success:
                try:
                    return answer.json()
                except ValueError as error:
                    raise EnvError(f"{public(url)} answered with something that is not JSON: {error}") from error
            raise EnvError(f"{public(url)} answered with status {answer.status_code}: {answer.text[:200]}")
    raise EnvError(f"{public(url)} gave no answer in {retries + 1} tries; the last: {said}")
