"""`hub:OWNER/NAME@REVISION`: a directory of the Hugging Face hub, fetched once for each commit."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.files import new_directory
from openxla.benchmark.models.architectures.directories import CONFIG_FILE
from openxla.benchmark.root import root_dir

PREFIX = "hub:"
_NAME = re.compile(r"(\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(\w[\w./-]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATIENCE_S = 10
_PICKLES = (".bin",)
# What models are loaded by besides weights: configurations, tokenizers, image processors.
_SMALL = (".json", ".model", "vocab.txt", "merges.txt")


@attrs.frozen(kw_only=True)
class Fetched:
    """A directory that is here.

    Attributes:
      directory: of the model, by its own name.
      name: `OWNER/NAME@COMMIT`, which is the same for ever.
    """

    directory: Path
    name: str


def fetched(text: str, *, allow_code: bool) -> Fetched:
    """Returns the directory of a model on the hub; of a commit that is here without asking.

    Args:
      text: `hub:OWNER/NAME`, with `@` and a branch, tag or commit where it is not the main branch.
      allow_code: whether to fetch weights that can hold code if the repository has no others.

    Raises:
      BroughtError: the hub cannot be reached, or does not have it.
    """
    form = _NAME.fullmatch(text.removeprefix(PREFIX))
    if form is None:
        raise BroughtError(f"expected hub:OWNER/NAME or hub:OWNER/NAME@REVISION, got {text!r}")
    repository, revision = form[1], form[2]
    if revision and _COMMIT.fullmatch(revision):
        here = _of(repository, revision)
        if (here.directory / CONFIG_FILE).is_file():
            return here
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise BroughtError(
            f"{text}: huggingface_hub is not installed; run `pip install huggingface_hub`"
        ) from error
    try:
        info = huggingface_hub.HfApi().model_info(
            repository, revision=revision, timeout=_PATIENCE_S
        )
    except Exception as error:  # of the hub's library, of its HTTP library, of the system
        raise _unreachable(text, error) from error
    commit = str(info.sha)
    if not _COMMIT.fullmatch(commit):
        raise BroughtError(f"{text}: the hub returned no commit")
    names = _needed(text, (file.rfilename for file in info.siblings or ()), allow_code)
    found = _of(repository, commit)
    if (found.directory / CONFIG_FILE).is_file():
        return found
    try:
        with new_directory(found.directory, whole_with=CONFIG_FILE) as directory:
            _download(huggingface_hub, repository, commit, names, directory)
    except Exception as error:
        raise _unreachable(text, error) from error
    return found


def _of(repository: str, commit: str) -> Fetched:
    owner, _, name = repository.rpartition("/")
    folder = root_dir() / "checkpoints" / "hub" / (owner or "_") / commit
    return Fetched(directory=folder / name, name=f"{repository}@{commit}")


def _needed(text: str, names: Iterable[str], allow_code: bool) -> list[str]:
    """Returns the files of a model: those at the top, of which pickles only where one must."""
    top = [name for name in names if "/" not in name and not name.startswith(".")]
    if CONFIG_FILE not in top:
        raise BroughtError(f"{text} is not a transformers model: it has no {CONFIG_FILE}")
    weights = [name for name in top if name.endswith(".safetensors")]
    if not weights:
        weights = [name for name in top if name.endswith(_PICKLES)]
        if not weights:
            raise BroughtError(f"{text} has neither safetensors nor pickled weights")
        if not allow_code:
            raise BroughtError(
                f"{text} has only pickled weights, which can run code when loaded; pass "
                "--allow-code if you trust them"
            )
    return [*weights, *(name for name in top if name.endswith(_SMALL))]


def _download(hub: Any, repository: str, commit: str, names: list[str], directory: Path) -> None:
    import shutil

    hub.snapshot_download(
        repository, revision=commit, local_dir=directory, allow_patterns=names, max_workers=4
    )
    shutil.rmtree(directory / ".cache", ignore_errors=True)
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise OSError(f"{missing[0]} was not downloaded")


def _unreachable(text: str, error: Exception) -> BroughtError:
    said = " ".join(str(error).split())[:160]
    return BroughtError(
        f"{text} cannot be fetched ({type(error).__name__}: {said}); check the name, the network, "
        "HF_ENDPOINT and HF_TOKEN, or pass a local directory that contains it"
    )
