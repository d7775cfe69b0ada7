"""Compares the error in the worst step of a correct generation with the error over all steps.

Reads the artifacts of generating models from the artifact root: truths in float64 and reference
runs in the model's own type. Prints the error of the worst step divided by the error of all steps.

    python benchmarks/step_errors.py [ROOT]
"""

import sys
from pathlib import Path

import numpy as np
from _timing import print_goal

from openxla.benchmark.artifacts import array_files
from openxla.benchmark.installation import root_dir
from openxla.benchmark.models.model_interfaces import LOGITS

GOAL = 2.0


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else root_dir()
    ratios = []
    for workload in sorted((root / "workloads").glob("*new-*")):
        truth, reference = (
            array_files.load_all(workload / kind, "output")[LOGITS].astype(np.float64)
            for kind in ("truth", "reference")
        )
        squared = ((reference - truth) ** 2).mean(axis=-1)
        ratios.append(float(np.sqrt(squared.max() / squared.mean())))
        print(f"{workload.name[:-13]:40} {squared.size:4} steps  {ratios[-1]:.2f}")
    if not ratios:
        raise SystemExit(
            f"{root} contains no generation; run e.g. cbs parity -name '.*GREEDY.*' first"
        )
    print_goal(
        f"a step of a correct generation has at most {GOAL:g} x the error of all steps",
        met=max(ratios) <= GOAL,
        found=f"{min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} workloads",
    )


if __name__ == "__main__":
    main()
