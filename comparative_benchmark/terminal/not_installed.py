"""One line for all trials without their packages: their rows would hold no numbers."""

from collections.abc import Mapping, Sequence

from comparative_benchmark.backends.missing_packages import Absence
from comparative_benchmark.results.case import Case


def split(cases: Sequence[Case]) -> tuple[list[Case], str]:
    """Returns the cases whose packages are installed, and the line for the others.

    The line is empty if there are no others. A backend that ran models of another framework is
    named with the framework that it lacks. Results of older files do not record an absence, so
    that their cases are among the first.
    """
    installed = [case for case in cases if not case.result.absence]
    present = {case.result.definition.backend for case in installed}
    absences: dict[str, Absence] = {}
    for case in cases:
        if absence := case.result.absence:
            backend = case.result.definition.backend
            name = f"{backend} for {case.framework} models" if backend in present else backend
            if absence.recipes_of is not None:
                name = f"{', '.join(absence.modules)} for recipes of {absence.recipes_of}"
            absences[name] = absence
    return installed, line(absences)


def line(absences: Mapping[str, Absence]) -> str:
    """Returns e.g. `not installed: iree, tflite (pip install -e '.[all]')`; empty for none.

    Args:
      absences: by the name of the backend, or of another thing that is not installed.
    """
    groups: dict[str, list[str]] = {}
    for name, absence in absences.items():
        groups.setdefault(absence.remedy, []).append(name)
    texts = (f"{', '.join(names)} ({remedy})" for remedy, names in groups.items())
    return f"not installed: {', '.join(texts)}" if groups else ""
