"""Where the artifacts of the suite's models are published, as the lock files say."""

from collections.abc import Sequence

import attrs

from openxla.benchmark.artifacts.stores import StoreError
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError


def with_urls(cases: Sequence[BenchmarkCase]) -> list[BenchmarkCase]:
    """Returns cases whose models have the `artifacts_dir_url` that is locked for them.

    A model that is not locked keeps the URL of its definition; nothing is ever fetched by that.

    Raises:
      DefinitionError: a lock file is damaged; the message names it.
    """
    from openxla.benchmark.artifacts import lock_file

    try:
        locks = lock_file.read_all() if any(lock_file.locks_dir().glob("*.json")) else {}
    except StoreError as error:
        raise DefinitionError(
            f"{error}. Mend it, restore it from version control, or remove it and lock again: "
            "cbs artifacts lock URL... -o FILE"
        ) from error
    if not locks:
        return list(cases)
    models = {
        case.model.name: attrs.evolve(case.model, artifacts_dir_url=locks[case.model.name].url)
        for case in cases
        if case.model.name in locks
    }
    return [attrs.evolve(case, model=models.get(case.model.name, case.model)) for case in cases]
