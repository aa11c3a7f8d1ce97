"""One digest of a policy's weights, whatever files or ranks they came from."""

import hashlib
from collections.abc import Mapping


def weights_digest(hashes: Mapping[str, str]) -> str:
    """Digest of a set of tensors.

    Args:
        hashes: hex hash of each tensor's type, shape and bytes, by Hugging Face name.

    Returns:
        BLAKE2b over the sorted names and their hashes, in hex: equal if and only if all tensors are equal.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(hashes):
        digest.update(f"{name}\0{hashes[name]}\n".encode())
    return digest.hexdigest()
