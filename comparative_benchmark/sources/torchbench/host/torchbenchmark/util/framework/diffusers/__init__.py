"""See `model_factory`; other functions are called by a folder's install.py."""

import subprocess
import sys


def install_diffusers() -> None:
    """Installs diffusers into the current environment."""
    subprocess.run([sys.executable, "-P", "-m", "pip", "install", "diffusers"], check=True)


def load_pretrained_model(*_: object, **__: object) -> None:
    """Fetches nothing: a folder fetches when it is run, if allowed."""
