"""`ci.yaml` of a userbenchmark: its CI platform and schedule."""

from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.interop.userbenchmarks.authoring import PLATFORMS
from openxla.benchmark import devices

FILE = "ci.yaml"
SCHEDULES = ("nightly", "weekly")


class CiError(ValueError):
    """A `ci.yaml` is invalid; the message names the file and the error."""


@attrs.frozen(kw_only=True)
class Ci:
    """Contents of a `ci.yaml`.

    Attributes:
      platform: a device of this suite, one of TorchBench's platforms, or another CI's name.
      schedule: one of `SCHEDULES`.
      note: a hint for the user about an unknown platform; None if the platform is known.
    """

    platform: str
    schedule: str
    note: str | None = None


def read_ci(path: Path) -> Ci | None:
    """Returns the contents of the file, or None if it does not exist.

    Raises:
      CiError: the file is invalid, or PyYAML is not installed.
    """
    if not path.is_file():
        return None
    document = _document(path)
    if not isinstance(document, dict):
        raise CiError(f"{path}: expected a mapping with 'platform' and 'schedule'")
    unknown = sorted(str(key) for key in set(document) - {"platform", "schedule"})
    if unknown:
        raise CiError(f"{path}: unknown key {unknown[0]!r}; expected 'platform' or 'schedule'")
    platforms = (*PLATFORMS, *(device.name for device in devices.ALL_DEVICES))
    schedule = _choice(path, document, "schedule", SCHEDULES)
    platform = document.get("platform")
    # Unknown platforms are allowed: another CI may have other machines.
    if isinstance(platform, str) and platform and platform not in platforms:
        note = f"{path}: platform {platform!r} is not one of {', '.join(platforms)}"
        return Ci(platform=platform, schedule=schedule, note=note)
    return Ci(platform=_choice(path, document, "platform", platforms), schedule=schedule)


def _choice(path: Path, document: dict[Any, Any], key: str, choices: tuple[str, ...]) -> str:
    value = document.get(key)
    if value is None:
        raise CiError(f"{path}: {key!r} is missing; choices are {', '.join(choices)}")
    if value not in choices:
        raise CiError(f"{path}: {key} {value!r} is not one of {', '.join(choices)}")
    return str(value)


def _document(path: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise CiError(f"{path}: reading it requires PyYAML: pip install pyyaml") from error
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise CiError(f"{path}:{line}: invalid YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise CiError(f"{path} cannot be read as YAML: {error}") from error
