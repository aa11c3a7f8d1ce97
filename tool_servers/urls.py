"""A server's address as messages show it: what people put keys into stays out of traces and logs."""

from urllib.parse import urlsplit


def public(url: str) -> str:
    """The address without user, password, query and fragment; what has none of them is given back as it is."""
    parts = urlsplit(url)
    if not (parts.query or parts.fragment or "@" in parts.netloc):
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def without_keys(url: str, text: str) -> str:
    """A text that may quote an address, with the address as it is shown."""
    hidden = text.replace(url, public(url))
    query = urlsplit(url).query
    return hidden.replace(query, "…") if query else hidden
