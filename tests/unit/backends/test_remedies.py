"""The suggested command for a missing backend is valid for pip, old or new."""

import re
import tomllib
from pathlib import Path

import pytest

from comparative_benchmark.backends import missing_packages
from comparative_benchmark.backends.api import UnknownBackendError, backends, get_backend
from openxla.benchmark import installation

ROOT = Path(__file__).parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


OWN = [
    name
    for name, backend in sorted(backends().items())
    if backend.implementation.startswith("comparative_benchmark.")
]


@pytest.mark.parametrize("name", OWN)
def test_each_backend_names_extras_that_there_are(name):
    backend = get_backend(name)
    assert set(backend.extras) <= set(EXTRAS)
    [extra] = re.findall(r"pip install -e '\.\[([^]]+)\]'", backend.install)
    assert extra in EXTRAS
    assert (ROOT / str(backend.setup_script)).is_file()


def test_no_extra_has_a_name_that_pip_before_23_3_does_not_know():
    """It compares the requested names with the names in the metadata, which have hyphens."""
    named = " ".join(EXTRAS["all"] + EXTRAS["dev"])
    assert not [extra for extra in EXTRAS if "_" in extra]
    assert "_" not in "".join(re.findall(r"common-benchmark-suite\[[^]]*\]", named))


def test_an_installed_package_is_not_told_to_look_into_a_checkout(monkeypatch):
    monkeypatch.setattr(missing_packages, "checkout", lambda: None)
    monkeypatch.setattr(installation, "checkout", lambda: None)
    monkeypatch.setattr(installation, "_recorded", lambda: None)
    assert missing_packages.setup_script("jax_xla") is None
    assert (
        installation.install_command("jax-xla") == "pip install 'common-benchmark-suite[jax-xla]'"
    )


def test_a_misspelt_backend_or_compiler_gets_the_nearest():
    with pytest.raises(UnknownBackendError, match=r"no backend 'jaxxla'; did you mean jax_xla\?"):
        get_backend("jaxxla")
    with pytest.raises(UnknownBackendError, match=r"compiler 'egar'; did you mean eager\?"):
        get_backend("pt_inductor").compiler("egar")
