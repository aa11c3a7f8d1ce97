"""Whose address it is that something listens on."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own; a name other than localhost counts as one that others can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
