"""Races the zoo at real sizes, and writes the page in docs/results.

    python benchmarks/published_results.py --list
    python benchmarks/published_results.py [--minutes M] [--only NAME ...]
    python benchmarks/published_results.py --page-only

A finished race puts its results into `docs/results/NAME.json`, without the names of hosts and
folders. Later calls skip it, unless `--only` names it, and resume an interrupted race. Run nothing
else at the same time: a disturbed race stays in the page as `unclear (disturbed)`.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
from _timing import print_table

import comparative_benchmark as cb
from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD, Verdict
from comparative_benchmark.errors import EXIT_INTERRUPTED, EXIT_UNFINISHED
from comparative_benchmark.reporting.report.inputs import merge
from comparative_benchmark.results.comparing.compare import Family
from comparative_benchmark.results.published import published
from comparative_benchmark.results.record import Document
from comparative_benchmark.terminal.compare_views import latency_text, speedup_text
from comparative_benchmark.terminal.run_summary import rank
from comparative_benchmark.terminal.tables import results_table

ROOT = Path(__file__).resolve().parents[1]
UNFINISHED = ROOT / "build" / "published"
FOLDER = ROOT / "docs" / "results"
FRAMEWORKS = "(PT|JAX|TF)"
EAGER, INDUCTOR = "pt_inductor:eager", "pt_inductor:inductor"
FRAMEWORK_STACKS = (EAGER, INDUCTOR, "jax_xla:xla", "tf_xla:xla")
EVERY_STACK = (*FRAMEWORK_STACKS, "onnxruntime:default", "openvino:latency", "iree:llvm-cpu")
INT8_STACKS = (
    *("onnxruntime:default", "onnxruntime:default+int8dq-tensor"),
    *("openvino:latency", "openvino:latency+int8wo"),
    *(EAGER, f"{EAGER}+int8dq", f"{INDUCTOR}+int8dq"),
)


@attrs.frozen(kw_only=True)
class PublishedRace:
    """A race of the campaign.

    Attributes:
      model: regular expression for the model's name; `{}` stands for the frameworks.
      stacks: competitors.
      minutes: estimate on two cores.
    """

    name: str
    model: str
    stacks: Sequence[str] = EVERY_STACK
    minutes: int = 20

    @property
    def measured(self) -> Path:
        """Results file of `cbs run`."""
        return UNFINISHED / f"{self.name}.json"

    @property
    def published(self) -> Path:
        """Results file of the finished race."""
        return FOLDER / f"{self.name}.json"

    def command(self) -> list[str]:
        """Returns the command line of the race."""
        model = self.model.replace("{}", FRAMEWORKS)
        return [
            *(sys.executable, "-m", "comparative_benchmark", "run"),
            *("-name", f"models/{model}/inputs/INPUT_DATA_MODEL_DEFAULT"),
            *("--backend", ",".join(self.stacks), "--baseline", self.stacks[0]),
            # The fewest from which close programs get a verdict and an exit code.
            *("--processes", "6", "-o", str(self.measured), "--resume", "--busy"),
        ]


def _of_types(name: str, model: str, types: Sequence[str], minutes: int) -> list[PublishedRace]:
    stacks = {"FP32": EVERY_STACK, "BF16": FRAMEWORK_STACKS}
    return [
        PublishedRace(
            name=f"{name}-{kind.lower()}",
            # Names of shapes contain the type too.
            model=model.replace("<type>", kind),
            stacks=stacks[kind],
            minutes=minutes,
        )
        for kind in types
    ]


BOTH = ("FP32", "BF16")
RACES = (
    *_of_types("bert-base", "BERT_BASE_<type>_{}_I32_SEQLEN128", BOTH, 20),
    *_of_types("bert-base-512", "BERT_BASE_<type>_{}_I32_SEQLEN512", ("FP32",), 30),
    *_of_types("bert-large", "BERT_LARGE_<type>_{}_384XI32_BATCH1", BOTH, 35),
    *_of_types("resnet50", r"RESNET50_<type>_{}_\w+_BATCH1", BOTH, 15),
    *_of_types("resnet50-batch-8", r"RESNET50_<type>_{}_\w+_BATCH8", ("FP32",), 25),
    *_of_types("vit-base", r"VIT_BASE_<type>_{}_\w+_BATCH1", BOTH, 15),
    *_of_types("vit-base-batch-8", r"VIT_BASE_<type>_{}_\w+_BATCH8", ("FP32",), 30),
    *_of_types("gpt2", "GPT2LMHEAD_<type>_{}_512XI32_BATCH1", BOTH, 25),
    *_of_types("efficientnet-b0", r"EFFICIENTNETB0_<type>_{}_\w+_BATCH1", BOTH, 15),
    *_of_types("efficientnet-b0-batch-8", r"EFFICIENTNETB0_<type>_{}_\w+_BATCH8", ("FP32",), 20),
    *_of_types("t5-small", "T5_SMALL_<type>_{}_1X128XI32", ("FP32",), 15),
    *_of_types("whisper-tiny", r"WHISPER_39M_<type>_{}_\w+_BATCH1", BOTH, 25),
    PublishedRace(
        name="gpt2-generation",
        model="GPT2_GREEDY_FP32_{}_1X512XI32_128XI32",
        stacks=(EAGER, "jax_xla:xla", "tf_xla:xla"),
        minutes=35,
    ),
    # Only three workers with 2.2 GB of weights each fit into memory.
    PublishedRace(
        name="llama-1b-bf16",
        model="LLAMA_1B_BF16_{}_512XI32_BATCH1",
        stacks=(EAGER, "jax_xla:xla", "tf_xla:xla"),
        minutes=45,
    ),
    PublishedRace(
        name="t5-small-generation",
        model="T5_4CG_SMALL_FP32_{}_1X128XI32_GEN32",
        stacks=(EAGER, "jax_xla:xla", "tf_xla:xla"),
        minutes=20,
    ),
    # No other race has these lengths, so their fp32 results belong to these races.
    *(
        PublishedRace(
            name=f"bert-base-int8-{length}",
            model=f"BERT_BASE_FP32_PT_I32_SEQLEN{length}",
            stacks=INT8_STACKS,
            minutes=20,
        )
        for length in (64, 256)
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--list", action="store_true", help="list the races and their estimated times"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="races to run (default: all)")
    parser.add_argument(
        "--minutes", type=float, help="time limit in minutes, checked before each race"
    )
    parser.add_argument("--page-only", action="store_true", help="only write the page")
    options = parser.parse_args()
    races = [race for race in RACES if not options.only or race.name in options.only]
    if options.list:
        rows = [[race.name, f"{race.minutes} min", ", ".join(race.stacks)] for race in races]
        print_table(["race", "estimate", "competitors"], rows)
        hours = sum(race.minutes for race in races) / 60
        print(f"{len(races)} races, about {hours:.1f} h on two cores")
        return 0
    if not options.only:
        races = [race for race in races if not race.published.exists()]
    UNFINISHED.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    for race in () if options.page_only else races:
        left = None if options.minutes is None else options.minutes * 60
        if left is not None and time.monotonic() - started + race.minutes * 60 > left:
            print(f"{race.name} needs {race.minutes} min; postponed to the next call")
            continue
        print(f"== {race.name}", flush=True)
        environment = dict(os.environ)
        if any("+" in stack for stack in race.stacks):
            # Packages for recipes, which `scripts/test.sh` keeps apart from .venv.
            environment["PYTHONPATH"] = str(ROOT / ".recipes.venv")
        code = subprocess.run(race.command(), cwd=ROOT, env=environment, check=False).returncode
        results = cb.load(race.measured)
        # Failures of competitors set the code as well, and belong to the results.
        if code in (EXIT_INTERRUPTED, EXIT_UNFINISHED) or not results:
            return code
        cb.Results(_without_conditions(published(results.document))).save(race.published)
        race.measured.unlink()
    write_page()
    return 0


PAGE = """# Published results

{count} of {all} races of models at real sizes, on one machine. The [report](report.html) has all
figures, and the reason of each result that is not `ok`.

| | |
|---|---|
| machine | {machine} |
| date | {dates} |
| packages | {packages} |
| revision | {revisions} |

## The lowest latencies

The first competitor of each row has the lowest latency with a correct output. The others are not
clearly slower. Speed-ups are relative to eager PyTorch.

{leaders}
Latencies have 95 % intervals, and speed-ups have 98 % intervals. A verdict accounts for all pairs
of competitors in its race, so it can be `unclear` although its interval excludes 1. [Read a
result](../getting-started/read-a-result.md) explains verdicts and columns.

One command repeats the races and writes this page:

```sh
python benchmarks/published_results.py
```
"""


# Packages whose versions the page names.
STACKS: tuple[str, ...] = ("torch", "jax", "jaxlib", "tensorflow", "keras", "iree-base-compiler")
STACKS += ("onnxruntime", "openvino", "torchao", "nncf")


def write_page() -> None:
    """Writes the report, and a page with the answer and the table of each finished race."""
    finished = {race: cb.load(race.published) for race in RACES if race.published.exists()}
    together = merge([race.document for race in finished.values()])
    cb.Results(together.document).report(FOLDER / "report.html", title="Published results")
    environments = [run.execution_environment for run in together.runs]
    versions: defaultdict[str, set[str]] = defaultdict(set)
    for package in itertools.chain(*(one.python_environment for one in environments)):
        versions[package.name].add(package.version)
    page = PAGE.format(
        count=len(finished),
        all=len(RACES),
        machine=_listed(
            f"{host.cpu_model}, {host.usable_cpus} CPUs, {host.memory_bytes / 2**30:.0f} GiB, "
            f"{host.system}"
            for host in (one.host for one in environments)
        ),
        dates=_listed(f"{case.started:%Y-%m-%d}" for case in together.cases),
        packages=", ".join(
            f"{name} {_listed(versions[name])}" for name in STACKS if name in versions
        ),
        revisions=_listed(one.git_revision[:8] for one in environments if one.git_revision),
        leaders=_markdown(
            ["race", "competitors", "latency ms", "speed-up", "verdict"],
            [
                _leaders(race, results)
                for race, results in finished.items()
                if race.stacks[0] == EAGER
            ],
        ),
    )
    for race, results in finished.items():
        answer = "".join(f"- {line}\n" for line in results.recommendation.splitlines())
        page += f"\n## {race.name}\n\n{answer}\n{_table(results)}"
        page += f"\n[Results file]({race.published.name})\n"
    (FOLDER / "index.md").write_text(page, encoding="utf-8")


def _without_conditions(document: Document) -> Document:
    """Returns a document without the conditions of blocks, which fill two thirds of its file.

    Their verdicts stay: each block's `contended`, and the trial's `contention`.
    """
    results = []
    for result in document.benchmarks:
        metrics = result.measured
        processes = tuple(
            attrs.evolve(
                process,
                blocks=tuple(attrs.evolve(block, conditions=None) for block in process.blocks),
            )
            for process in metrics.processes or ()
        )
        levels = {result.level: attrs.evolve(metrics, processes=processes)}
        results.append(attrs.evolve(result, metrics=attrs.evolve(result.metrics, **levels)))
    return attrs.evolve(document, benchmarks=tuple(results))


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def _leaders(race: PublishedRace, results: cb.Results) -> list[str]:
    """Returns the fastest competitors of a race, and how the first compares with the baseline."""
    cases = list(results)
    family = Family(cases, threshold=NOISE_THRESHOLD)
    best, *others = rank(cases)
    leaders = [best]
    leaders += [
        case for case in others if family.comparison(best, case).verdict is not Verdict.SLOWER
    ]
    [baseline] = [case for case in cases if case.competitor == race.stacks[0]]
    comparison = family.comparison(baseline, best)
    return [
        f"[{race.name}](#{race.name})",
        ", ".join(f"{case.competitor} ({case.framework})" for case in leaders),
        latency_text(comparison.candidate_ms),
        speedup_text(comparison.ratio),
        "baseline" if best is baseline else comparison.word,
    ]


def _table(race: cb.Results) -> str:
    """Returns the table of `cbs show` in Markdown, without the name of the workload."""
    _, *columns = results_table(race, baseline=race.baseline).table.columns
    cells = ([str(cell) for cell in column.cells] for column in columns)
    return _markdown([str(column.header) for column in columns], zip(*cells, strict=True))


def _markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
