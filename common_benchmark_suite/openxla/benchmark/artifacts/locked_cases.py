"""Where the artifacts of the suite's models are published, as the lock files say."""

from collections.abc import Sequence

import attrs

from openxla.benchmark.def_types import BenchmarkCase, DefinitionError
from openxla.benchmark.root import locks_dir


def with_urls(cases: Sequence[BenchmarkCase]) -> list[BenchmarkCase]:
    """Returns cases whose models have the `artifacts_dir_url` that is locked for them.

    A model that is not locked keeps the URL of its definition (see `published_urls`).

    Raises:
      DefinitionError: a lock file is damaged; the message names it.
    """
    if not any(locks_dir().glob("*.json")):
        return list(cases)
    # Only now: the libraries that read them take longer to import than all definitions.
    from openxla.benchmark.artifacts import lock_file
    from openxla.benchmark.artifacts.stores import StoreError

    try:
        locks = lock_file.read_all()
    except StoreError as error:
        raise DefinitionError(
            f"{error}. Fix the file, restore it from version control, or remove it and lock again "
            "with `cbs artifacts lock URL... -o FILE`"
        ) from error
    models = {
        case.model.name: attrs.evolve(case.model, artifacts_dir_url=locks[case.model.name].url)
        for case in cases
        if case.model.name in locks
    }
    return [attrs.evolve(case, model=models.get(case.model.name, case.model)) for case in cases]
