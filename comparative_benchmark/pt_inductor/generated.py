"""What Inductor generated in this process: the identity and size of its code."""

import hashlib
from pathlib import Path

from torch._inductor.codecache import PyCodeCache


def generated_code() -> tuple[str, int] | None:
    """Returns sha256 and size in bytes of all generated modules; None if there are none.

    A module holds the wrapper and the source of its C++ or Triton kernels, without paths or dates:
    the same source with the same versions gives the same program.
    """
    files = {Path(str(module.__file__)) for module in PyCodeCache.modules}
    contents = sorted(file.read_bytes() for file in files if file.is_file())
    if not contents:
        return None
    digests = [hashlib.sha256(content).digest() for content in contents]
    return hashlib.sha256(b"".join(digests)).hexdigest(), sum(map(len, contents))
