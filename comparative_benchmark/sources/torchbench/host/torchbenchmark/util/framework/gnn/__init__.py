"""See `model_factory`; other functions are called by a folder's install.py."""

import subprocess
import sys


def install_pytorch_geometric() -> None:
    """Installs PyTorch Geometric into the current environment."""
    subprocess.run([sys.executable, "-P", "-m", "pip", "install", "torch_geometric"], check=True)


pip_install_requirements = install_pytorch_geometric
