"""See `model_factory`; other functions are called by a folder's install.py."""


def install_detectron2(*_: object, **__: object) -> None:
    """Refuses: detectron2 is on no package index.

    Raises:
      RuntimeError: always.
    """
    raise RuntimeError("detectron2 is not on a package index; build it from its repository")
