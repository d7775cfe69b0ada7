"""See `model_factory`; the rest is what install.py of a folder calls."""

import subprocess
import sys


def install_pytorch_geometric() -> None:
    """Installs PyTorch Geometric into the environment that this runs in."""
    subprocess.run([sys.executable, "-P", "-m", "pip", "install", "torch_geometric"], check=True)


pip_install_requirements = install_pytorch_geometric
