"""`cbs ci-template`: writes a GitHub workflow that races a model on every pull request."""

import json
import os
import re
from pathlib import Path

from comparative_benchmark.errors import EXIT_OK, UsageError
from openxla.benchmark import installation
from openxla.benchmark.files import new_file
from openxla.benchmark.text import printable
from openxla.benchmark.user_models import ModelOptions, UserModelError, find_cases_bounded, place_of
from openxla.benchmark.user_models.places import OwnModule

_TEMPLATE = Path(__file__).parent / "templates" / "ci_workflow.yml.txt"
_DEFINITIONS = "*_definitions.py"


def write_workflow(model: str, *, backends: str, install: str | None) -> int:
    """Writes the workflow into the checkout around the working directory; returns 0.

    Args:
      model: a model for `cbs run`, or a suite's folder; None for the only such folder here.
      backends: value of `--backend`.
      install: requirement for pip to install the suite; None for this version of it.

    Raises:
      UsageError: the model is not in this checkout, or cannot run, or another file has the
        workflow's name.
    """
    here = Path.cwd()
    root = next((at for at in (here, *here.parents) if (at / ".git").exists()), here)
    model, is_suite = _model(model, root)
    if not is_suite:
        try:
            find_cases_bounded(model, ModelOptions(folder=root))
        except UserModelError as error:
            raise UsageError(f"`cbs run` cannot run this model: {error}") from error
    path = root / ".github" / "workflows" / f"benchmark-{_stem(model)}.yml"
    suite = install or requirement("pt-inductor,onnxruntime")
    content = workflow(model, is_suite=is_suite, backends=backends, suite=suite)
    _write(path, content)
    print(printable(str(path)))
    print("\nCommit this file. Each pull request then gets a table that compares it with its base.")
    return EXIT_OK


def workflow(model: str, *, is_suite: bool, backends: str, suite: str) -> str:
    """Returns the workflow's text, with all inputs quoted to prevent code injection.

    Args:
      model: model for `cbs run`, relative to the root of the checkout; or a suite's folder.
      is_suite: whether `model` is a suite's folder.
      backends: value of `--backend`.
      suite: requirement for pip to install the suite.

    Raises:
      UsageError: GitHub would evaluate one of these strings, or one is unprintable.
    """
    fields = {
        "WHAT": "the cases in a folder" if is_suite else "a model",
        "NAME": for_workflow(f"Benchmark of {model}"),
        "MODEL": for_workflow(f"./{model}" if model.startswith("-") else model),
        "BACKENDS": for_workflow(backends),
        "SUITE": for_workflow(suite),
        "ASKED": "--suite-dir " if is_suite else "",
    }
    text = _TEMPLATE.read_text(encoding="utf-8")
    # Substitute in one pass, because a name may look like a field.
    return re.sub(r"@([A-Z]+)@", lambda match: fields[match[1]], text)


def for_workflow(text: str) -> str:
    """Returns a string as YAML of a workflow, where only a variable may receive it.

    Raises:
      UsageError: GitHub would evaluate it, even in quotes, or it is unprintable.
    """
    if "${{" in text or not text.isprintable():
        why = "it contains '${{' or an unprintable character"
        raise UsageError(f"{text!r} cannot be used in a workflow: {why}")
    # YAML reads JSON strings unchanged.
    return json.dumps(text)


def requirement(extras: str) -> str:
    """Returns a requirement for this revision of the suite that GitHub's runners can install.

    Raises:
      UsageError: this revision is only available on this machine.
    """
    pinned = installation.requirement(extras)
    if pinned is None or "@ git+https://" not in pinned:
        raise UsageError(
            "the suite is not on a package index yet, and this copy has no public Git origin; "
            f"choose a revision with --install '{installation.PACKAGE}[{extras}] @ "
            "git+https://HOST/OWNER/REPOSITORY@COMMIT'"
        )
    return pinned


def _model(given: str | None, root: Path) -> tuple[str, bool]:
    """Returns the model or suite folder relative to the checkout, and whether it is a suite.

    Raises:
      UsageError: it does not exist, or several do and none was specified.
    """
    here = Path.cwd()
    if given is None:
        folders = sorted({path.parent for path in here.glob(f"*/{_DEFINITIONS}")})
        if len(folders) != 1:
            names = ", ".join(path.name for path in folders) or "none"
            raise UsageError(
                "MODEL may be omitted only if `cbs run MODEL --save-as` wrote exactly one folder "
                f"here; found: {names}"
            )
        return _inside(folders[0], root), True
    folder = here / given
    if folder.is_dir() and any(folder.glob(_DEFINITIONS)):
        return _inside(folder, root), True
    if given.startswith("hub:"):
        raise UsageError(f"{given} is not in the checkout {root}; choose a model in the checkout")
    try:
        place = place_of(given, here)
    except UserModelError as error:
        raise UsageError(str(error)) from error
    if isinstance(place, OwnModule) and place.module:
        if place.root != root:
            raise UsageError(
                f"{given} cannot be imported from {root}; specify it as PATH.py:CALLABLE instead"
            )
        return given, False
    if isinstance(place, OwnModule):
        name = _inside(place.file, root)
        return f"{name}:{place.callable}" if place.callable else name, False
    return _inside(place if isinstance(place, Path) else place.path, root), False


def _inside(path: Path, root: Path) -> str:
    path = path.resolve() if path.name == ".." else path.parent.resolve() / path.name
    if not path.is_relative_to(root.resolve()):
        raise UsageError(f"{path} is outside {root}: a workflow can use only files in the checkout")
    return os.path.relpath(path, root.resolve())


def _stem(model: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "model"


def _write(path: Path, content: str) -> None:
    if path.exists() and path.read_text(encoding="utf-8", errors="replace") == content:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path, overwrite=False) as temporary:
            temporary.write_text(content, encoding="utf-8")
    except FileExistsError as error:
        raise UsageError(f"{path} already exists with other content; remove it first") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
