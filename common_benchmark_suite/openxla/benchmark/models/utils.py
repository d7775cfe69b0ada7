"""Helpers that model modules of the OpenXLA suite call by these names."""

import importlib
import io
import urllib.request
from typing import TYPE_CHECKING, Any

from openxla.benchmark import def_types

if TYPE_CHECKING:
    from PIL.Image import Image

_TIMEOUT_S = 30.0


def download_and_read_img(url: str) -> "Image":
    """Returns the picture at an address.

    Raises:
      OSError: the address cannot be reached, or holds no picture.
      ValueError: the address is not http or https.
    """
    from PIL import Image

    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url!r} is not an http or https URL")
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # checked above
        return Image.open(io.BytesIO(answer.read()))


def create_model_obj(model: def_types.Model) -> Any:
    """Returns the model of a definition, created with its parameters."""
    module = importlib.import_module(str(model.model_impl.module_path))
    return module.create_model(**model.model_parameters)


def canonicalize_to_tuple(return_value: Any) -> tuple[Any, ...]:
    """Returns a tuple unchanged, and a single value as a tuple of one."""
    return return_value if isinstance(return_value, tuple) else (return_value,)
