"""Compares the baseline with itself 50 times, with `cbs micro run`, and counts the verdicts.

The guide's layer runs eager and compiled, over 25 shapes. Each runs in this Python environment
under two names, so both are the same program. The verdict is `faster` or `slower` if the 98 %
interval of the ratio does not contain 1 (and the ratio is 1 % away from 1). So two in a hundred
pairs may have a verdict; the goal is 0 of 50. With three processes each, it takes ten minutes on
two idle cores.

    python benchmarks/baseline_against_itself.py [--quick] [--processes 3] [-o FILE]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from _binomial import share_interval
from _timing import print_goal, print_table

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.comparing.comparison import Comparison
from comparative_benchmark.results.results_file import read_document

_COMPILERS = ("pt_inductor:eager", "pt_inductor:inductor")
_NAMES = ("one", "other")
# The guide's sweep has increasing powers of two. The shapes take a microsecond to milliseconds.
_SHAPES = [
    f"{m}x{k}x{n}" for m in (16, 32, 64, 128, 256) for k, n in ((64, 256), (128, 512), (256, 256),
    (256, 1024), (512, 512))
]  # fmt: skip
_ALLOWED = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="try the script with two shapes")
    parser.add_argument("--processes", type=int, default=3, help="processes per trial (default: 3)")
    parser.add_argument("-o", "--output", type=Path, help="path to keep the results file at")
    options = parser.parse_args()
    shapes = _SHAPES[::12][:2] if options.quick else _SHAPES
    with tempfile.TemporaryDirectory(prefix="cbs-itself-") as directory:
        output = (options.output or Path(directory) / "results.json").absolute()
        command = [
            *(sys.executable, "-m", "comparative_benchmark", "micro", "run", "--op", "linear"),
            *("--dtype", "bf16", "--shapes", ",".join(shapes), "--backend", ",".join(_COMPILERS)),
            *("--env", ",".join(f"{name}={sys.executable}" for name in _NAMES)),
            *("--processes", str(options.processes), "-o", str(output)),
            # More than enough. A run with a budget does not measure this machine's ceilings.
            *("--budget", "7200"),
        ]
        started = time.monotonic()
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        wall_s = time.monotonic() - started
        print(f"cbs micro run: exit code {done.returncode}, {wall_s / 60:.1f} min")
        pairs = pairs_of(output)
    _print(pairs)
    verdicts = Counter(pair.verdict for pair in pairs)
    wrong = verdicts[Verdict.FASTER] + verdicts[Verdict.SLOWER]
    judged = len(pairs) - verdicts[Verdict.INCOMPARABLE]
    if not judged:
        print("cannot compare any pair")
        return 1
    low, high = share_interval(wrong, judged)
    print(
        f"{judged} of {len(pairs)} pairs compared; {wrong} faster or slower: {wrong / judged:.1%} "
        f"(95 %: {low:.1%}-{high:.1%}), allowed {_ALLOWED:.0%}"
    )
    print_goal(
        "the baseline is never faster or slower than itself",
        met=not wrong and judged == 2 * len(shapes),
        found=f"{wrong} of {judged} pairs",
    )
    return 0


def pairs_of(path: Path) -> list[Comparison]:
    """Returns comparisons of each compiler under the second name with the first name."""
    cases = cases_of(read_document(path))
    found = []
    for compiler in _COMPILERS:
        both = [f"{compiler}@{name}" for name in _NAMES]
        own = [case for case in cases if case.competitor in both]
        found += [c for c in compare_to_baseline(own, both[0]) if c.competitor == both[1]]
    return found


def _print(pairs: list[Comparison]) -> None:
    rows = []
    for pair in pairs:
        ratio = pair.ratio
        text = f"{ratio.estimate:.3f} ({ratio.low:.3f}-{ratio.high:.3f})" if ratio else "-"
        rows.append([f"{pair.label} {pair.competitor}", text, pair.verdict.value, pair.reason])
    print_table(["pair", "ratio (98 %)", "verdict", "because"], rows)


if __name__ == "__main__":
    raise SystemExit(main())
