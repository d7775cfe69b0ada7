"""Published TFLite files."""

import hashlib
from collections.abc import Mapping
from typing import Any

from comparative_benchmark.backends.api import BackendContext
from comparative_benchmark.tflite import BACKEND


def file(context: BackendContext) -> Mapping[str, Any]:
    """Returns the published file that a backend starts from, described as a converted one is."""
    ((path,),) = context.exported.values()
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "path": str(path),
        "sha256": sha256,
        "size_bytes": path.stat().st_size,
        "precision": BACKEND.compiler(context.compiler).precision or "fp32",
        "origin": "published",
        "versions": {},
    }
