"""A server's address as messages show it: what people put keys into stays out of traces and logs."""

from urllib.parse import urlsplit


def public(url: str) -> str:
    """The address without user, password, query and fragment; what has none of them is given back as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that cannot be read"
    if not (parts.query or parts.fragment or "@" in parts.netloc):
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def without_keys(url: str, text: str) -> str:
    """A text that may quote an address, with the address as it is shown."""
    query = url.partition("#")[0].partition("?")[2]
    hidden = text.replace(url, public(url))
    return hidden.replace(query, "…") if query else hidden
