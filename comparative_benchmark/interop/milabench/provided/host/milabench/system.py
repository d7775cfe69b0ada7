"""`milabench.system` as benchfiles import it."""

from typing import Any


class DockerConfig:
    """Settings of containers, which are not supported."""

    def __init__(self, image: "str | None" = None, **options: Any) -> None:
        self.image, self.options = image, options


def option(_: str, kind: Any, default: Any = None) -> Any:
    """Returns the default: options of the system are not set here."""
    return None if default is None else kind(default)
