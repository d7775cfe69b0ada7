"""Installs requirements into the current environment."""

import subprocess
import sys
from collections.abc import Sequence


def get_pip_cmd() -> list[str]:
    """Returns the command of pip for this interpreter."""
    return [sys.executable, "-P", "-m", "pip"]


def pip_install_requirements(
    requirements_txt: str = "requirements.txt",
    continue_on_fail: bool = False,
    no_build_isolation: bool = False,
    extra_args: Sequence[str] | None = None,
) -> tuple[bool, object]:
    """Installs a file of requirements; PIP_CONSTRAINT keeps PyTorch and NumPy unchanged.

    Raises:
      subprocess.CalledProcessError: pip failed, and failures are not ignored.
    """
    isolation = ["--no-build-isolation"] if no_build_isolation else []
    command = [
        *(*get_pip_cmd(), "install", "-r", requirements_txt),
        *(*isolation, *(extra_args or ())),
    ]
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        if not continue_on_fail:
            raise
        return False, error
    return True, None


def pip_install_s3_requirements(*_: object, **__: object) -> None:
    """Fails: the suite does not access such a store."""
    raise RuntimeError("ConnectionError: cbs does not access TorchBench's S3 store")
