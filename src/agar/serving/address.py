"""Whose address it is that something listens on, and what strangers must show there."""

import ipaddress
import os

from agar.errors import ConfigError

_SHORTEST_TOKEN = 16


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own; a name other than localhost counts as one that others can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def token_of(variable: str, *, host: str, setting: str) -> str | None:
    """The token that a server asks for, from the environment; None where it asks for none.

    Args:
        variable: the environment variable.
        host: the address that the server listens on.
        setting: what the address is called in the server's settings.

    Raises:
        ConfigError: others can reach the address and there is none, or it can be guessed.
    """
    token = os.environ.get(variable)
    if not token:
        if is_loopback(host):
            return None
        raise ConfigError(
            f"{setting} = {host!r} can be reached by others: set {variable} to a secret (`openssl rand -hex 32`), or "
            "listen on 127.0.0.1"
        )
    if len(token) < _SHORTEST_TOKEN:
        raise ConfigError(
            f"the token in {variable} has {len(token)} characters and can be guessed: use at least {_SHORTEST_TOKEN}, "
            "for instance `openssl rand -hex 32`"
        )
    return token
