"""Downloads of `hub:OWNER/NAME@REVISION`, a Hugging Face hub directory, once per commit."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.files import new_directory
from openxla.benchmark.installation import root_dir
from openxla.benchmark.models.architectures.directories import CONFIG_FILE
from openxla.benchmark.user_models.hugging_face.companion_formats import ADAPTER_FILE, MODULES_FILE
from openxla.benchmark.user_models.model_options import UserModelError

PREFIX = "hub:"
_NAME = re.compile(r"(\w[\w.-]*(?:/\w[\w.-]*)?)(?:@(\w[\w./-]*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATIENCE_S = 10
_PICKLES = (".bin",)
# Every directory that can be measured has one of these files at the top.
_MARKERS = (CONFIG_FILE, MODULES_FILE, ADAPTER_FILE)
# Each module of sentence-transformers has a folder.
_OF_MODULE = re.compile(r"\d+_\w+/[^/]+")
# Files other than weights that are needed for loading: configurations, tokenizers, processors.
_SMALL = (".json", ".model", "vocab.txt", "merges.txt")


@attrs.frozen(kw_only=True)
class Fetched:
    """A downloaded directory.

    Attributes:
      directory: path of the model, under its own name.
      name: `OWNER/NAME@COMMIT`, which never changes.
    """

    directory: Path
    name: str


def fetched(text: str, *, allow_code: bool) -> Fetched:
    """Returns the directory of a model on the hub; known commits need no network.

    Args:
      text: `hub:OWNER/NAME`, followed by `@` and a branch, tag or commit if not the main branch.
      allow_code: whether to download weights that can hold code if the repository has no others.

    Raises:
      UserModelError: the hub cannot be reached, or does not have the model.
    """
    form = _NAME.fullmatch(text.removeprefix(PREFIX))
    if form is None:
        raise UserModelError(f"expected hub:OWNER/NAME or hub:OWNER/NAME@REVISION, got {text!r}")
    repository, revision = form[1], form[2]
    if revision and _COMMIT.fullmatch(revision):
        here = _snapshot(repository, revision)
        if _is_whole(here.directory):
            return here
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise UserModelError(
            f"{text}: huggingface_hub is not installed; run `pip install huggingface_hub`"
        ) from error
    try:
        info = huggingface_hub.HfApi().model_info(
            repository, revision=revision, timeout=_PATIENCE_S
        )
    except Exception as error:  # from the hub's library, its HTTP library or the system
        raise _unreachable(text, error) from error
    commit = str(info.sha)
    if not _COMMIT.fullmatch(commit):
        raise UserModelError(f"{text}: the hub returned no commit")
    names = _needed(text, (file.rfilename for file in info.siblings or ()), allow_code)
    snapshot = _snapshot(repository, commit)
    if _is_whole(snapshot.directory):
        return snapshot
    marker = next(
        name for name in (*filter(_OF_MODULE.fullmatch, names), *_MARKERS) if name in names
    )
    try:
        with new_directory(snapshot.directory, whole_with=marker) as directory:
            _download(huggingface_hub, repository, commit, names, directory)
    except Exception as error:
        raise _unreachable(text, error) from error
    return snapshot


def _snapshot(repository: str, commit: str) -> Fetched:
    owner, _, name = repository.rpartition("/")
    folder = root_dir() / "checkpoints" / "hub" / (owner or "_") / commit
    return Fetched(directory=folder / name, name=f"{repository}@{commit}")


def _is_whole(directory: Path) -> bool:
    """Returns whether a directory is complete, including the modules after its transformer."""
    if not any((directory / name).is_file() for name in _MARKERS):
        return False
    return not (directory / MODULES_FILE).is_file() or any(directory.glob(f"*/{CONFIG_FILE}"))


def _needed(text: str, names: Iterable[str], allow_code: bool) -> list[str]:
    """Returns the files of a model; pickles only if a folder has no other weights."""
    every = [name for name in names if not name.startswith(".")]
    top = [name for name in every if "/" not in name]
    if not any(name in top for name in _MARKERS):
        raise UserModelError(f"{text} is not a transformers model: it has no {CONFIG_FILE}")
    folders = {"": top}
    for name in every if MODULES_FILE in top else ():
        if _OF_MODULE.fullmatch(name):
            folders.setdefault(name.partition("/")[0], []).append(name)
    files = [weight for folder in folders.values() for weight in _weights(text, folder, allow_code)]
    if not files:
        raise UserModelError(f"{text} has neither safetensors nor pickled weights")
    return files + [name for folder in folders.values() for name in folder if name.endswith(_SMALL)]


def _weights(text: str, names: list[str], allow_code: bool) -> list[str]:
    """Returns the files of a folder that hold weights."""
    weights = [name for name in names if name.endswith(".safetensors")]
    if not weights:
        weights = [name for name in names if name.endswith(_PICKLES)]
        if weights and not allow_code:
            raise UserModelError(
                f"{text} has only pickled weights, which can run code when loaded; pass "
                "--allow-code if you trust them"
            )
    return weights


def _download(hub: Any, repository: str, commit: str, names: list[str], directory: Path) -> None:
    import shutil

    hub.snapshot_download(
        repository, revision=commit, local_dir=directory, allow_patterns=names, max_workers=4
    )
    shutil.rmtree(directory / ".cache", ignore_errors=True)
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise OSError(f"{missing[0]} was not downloaded")


def _unreachable(text: str, error: Exception) -> UserModelError:
    said = " ".join(str(error).split())[:160]
    return UserModelError(
        f"{text} cannot be fetched ({type(error).__name__}: {said}); check the name, the network, "
        "HF_ENDPOINT and HF_TOKEN, or pass a local directory that contains it"
    )
