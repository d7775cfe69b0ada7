"""Which models were proved to export to what: the file that the suite's definitions read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comparative_benchmark.artifacts.exporters import kinds
from openxla.benchmark.artifacts.manifest import Manifest
from openxla.benchmark.comparative_suite import exports
from openxla.benchmark.def_types import Model
from openxla.benchmark.files import write_atomically


def entry(model: Model, manifest: Manifest) -> dict[str, Any]:
    """Returns what a manifest proves of a model.

    A failure that says nothing of the model, as a package that is not installed, is one all the
    same: what is not proved is not recorded as exported.
    """
    module_path, data_type, generates = exports.key_of(model.model_impl, model.model_parameters)
    made = {file.artifact_type for file in manifest.files}
    reasons = {failure.artifact_type: failure.reason for failure in manifest.failures}
    forms = [kind.name for kind in kinds.KINDS if kind.model_type is not None]
    forms += [name for name in sorted(reasons) if name not in forms]
    return {
        "module_path": module_path,
        "data_type": data_type,
        "generates": generates,
        "types": [name for name in forms if name in made],
        "failures": {
            name: reasons[name] for name in forms if name in reasons and kinds.is_form(name)
        },
    }


def update(path: Path, new: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds entries to a file; types that were not tried this time keep what is known of them.

    The same entries give the same bytes.
    """
    models = dict(exports.recorded(path))
    for name, found in new.items():
        models[name] = _merged(models.get(name, {}), found)
    document = {"version": exports.PROVED_VERSION, "models": dict(sorted(models.items()))}
    write_atomically(path, (json.dumps(document, indent=2, sort_keys=True) + "\n").encode())
    exports.recorded.cache_clear()


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    tried = {*new["types"], *new["failures"]}
    kept = [name for name in old.get("types", ()) if name not in tried]
    failures = {name: why for name, why in old.get("failures", {}).items() if name not in tried}
    return {
        **new,
        "types": sorted([*new["types"], *kept]),
        "failures": {**failures, **new["failures"]},
    }
