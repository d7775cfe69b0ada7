"""See `model_factory`; the rest is what install.py of a folder calls."""

import subprocess
import sys


def install_diffusers() -> None:
    """Installs diffusers into the environment that this runs in."""
    subprocess.run([sys.executable, "-P", "-m", "pip", "install", "diffusers"], check=True)


def load_pretrained_model(*_: object, **__: object) -> None:
    """Fetches nothing: a folder does so when it is run, if it may."""
