"""Digests of programs, of what they are made of, and of several together."""

import hashlib
from collections.abc import Iterable, Sequence


def of_parts(*parts: str | bytes) -> bytes:
    """Returns the sha256 of parts, each told from the next by its length."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()


def of_set(contents: Iterable[bytes]) -> str:
    """Returns the sha256 of several contents, in whatever order they come."""
    digests = sorted(hashlib.sha256(content).digest() for content in contents)
    return hashlib.sha256(b"".join(digests)).hexdigest()


def joint(digests: Sequence[str]) -> str:
    """Returns the digest of several programs, or that of the only one."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()
