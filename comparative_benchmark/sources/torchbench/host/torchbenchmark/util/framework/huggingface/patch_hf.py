"""Functions by which a folder's install.py downloads its model; here they do nothing."""


def patch_transformers() -> None:
    """Does not change transformers."""


def cache_model(name: str, **_: object) -> None:
    """Fetches nothing: configurations are in `networks`, and weights come from the seed."""
