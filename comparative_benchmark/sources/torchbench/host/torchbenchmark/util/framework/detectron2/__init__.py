"""See `model_factory`; the rest is what install.py of a folder calls."""


def install_detectron2(*_: object, **__: object) -> None:
    """Says that it cannot be had: it is on no package index.

    Raises:
      RuntimeError: always.
    """
    raise RuntimeError("detectron2 is not on a package index; build it from its repository")
