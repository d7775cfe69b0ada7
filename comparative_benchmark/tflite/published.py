"""Published TFLite files."""

from collections.abc import Mapping
from typing import Any

from comparative_benchmark.backends.api import BackendContext
from comparative_benchmark.tflite import BACKEND
from openxla.benchmark.files import sha256_of


def file(context: BackendContext) -> Mapping[str, Any]:
    """Returns the published file that a backend starts from, described as a converted one is."""
    ((path,),) = context.exported.values()
    return {
        "path": str(path),
        "sha256": sha256_of(path),
        "size_bytes": path.stat().st_size,
        "precision": BACKEND.compiler(context.compiler).precision or "fp32",
        "origin": "published",
        "versions": {},
    }
