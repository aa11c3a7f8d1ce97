"""Images in requests: only what the request itself carries, never the address of something to be fetched."""

import binascii
import re

from agar.rollout.gateway.call import BadRequest
from agar.types import ImagePart

_DATA_URL = re.compile(r"data:image/[A-Za-z0-9.+-]+;base64,")


def read_image(url: str, where: str) -> ImagePart:
    """An image of a request.

    An engine opens whatever address it is given, files of its own machine included, and for a program in a sandbox that
    would be a way out: so an image that does not come in the request is refused.

    Raises:
        BadRequest: it is no data URL of an image in base64.
    """
    head = _DATA_URL.match(url)
    if head is None:
        text = f"{where}: an image must be a data URL (data:image/png;base64,...), got {url[:40]!r}: send it itself"
        raise BadRequest(text, where)
    try:
        binascii.a2b_base64(url[head.end() :], strict_mode=True)
    except ValueError as error:  # so has one with characters beyond ASCII
        raise BadRequest(f"{where}: an image's data must be base64 ({error})", where) from None
    return ImagePart(url=url)
