"""Commands that explain one result or one change: `cbs bisect`, `explain` and `repro`."""

import argparse
import json
from pathlib import Path

from packaging.utils import canonicalize_name

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.api.measuring import selected
from comparative_benchmark.cli.options.run import request_from
from comparative_benchmark.cli.options.studies import bisect_request
from comparative_benchmark.engine.settings import settings_of
from comparative_benchmark.engine.trial import parse_competitors
from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, UsageError
from comparative_benchmark.request import EVAL
from comparative_benchmark.results.results_file import read_document
from comparative_benchmark.sources.selection import find_device
from comparative_benchmark.studies.bisection import bisection
from comparative_benchmark.studies.bisection.environments import (
    EnvironmentPool,
    Recipes,
    companions_of,
    lock_of,
)
from comparative_benchmark.studies.bisection.racing import Metric, RaceOracle
from comparative_benchmark.studies.bisection.request import BisectRequest, Subject, bisect
from comparative_benchmark.studies.explain import explained
from comparative_benchmark.studies.explain.profiling import NoProfileError, Profiling
from comparative_benchmark.studies.reproduce.creating import reproduce
from comparative_benchmark.terminal.console import Console
from comparative_benchmark.terminal.screen import output_screen
from openxla.benchmark.workloads import workload_of


def find_first_bad(options: argparse.Namespace) -> int:
    """Bisects, prints the outcome and returns the exit code.

    Returns:
      0 if a single first bad candidate was found and confirmed; 3 otherwise: the bad end is not
      bad, some candidates could not be judged, or no two neighbours differ.

    Raises:
      UsageError: an option is invalid, or an end cannot be judged.
    """
    request = bisect_request(options)
    console = Console(verbose=options.verbose, suites=options.suite)
    with console.following():
        outcome = bisect(request, _subject(options, request, console), say=console.say)
    if options.json:
        print(json.dumps(bisection.as_json(outcome), indent=2))
    else:
        metric = Metric(options.metric)
        print(
            bisection.as_text(
                outcome,
                metric.word,
                what=request.subject,
                effort="--attempts, --processes, --trial-budget",
                measured=metric.measured,
            )
        )
    return EXIT_OK if outcome.is_exact else EXIT_MISSING


def _subject(options: argparse.Namespace, request: BisectRequest, console: Console) -> Subject:
    device = find_device(options.device)
    competitors = parse_competitors(options.backend, device.accelerator_type)
    selection = selected(request_from(options))
    lock = lock_of(options.requirements, competitors)
    metric = Metric(options.metric)
    rule = SamplingRule(
        effect=options.effect,
        min_processes=options.processes or 3,
        max_processes=options.processes or 10,
        trial_budget_s=options.trial_budget,
        seed=options.seed or 0,
    )
    companions = companions_of(request.package, request.companion, lock)
    named = [*([request.package] if request.package else []), *companions]

    def oracle(pool: EnvironmentPool, recipes: Recipes, folder: Path) -> RaceOracle:
        return RaceOracle(
            selection=selection,
            competitors=competitors,
            metric=metric,
            settings=settings_of(
                device,
                timeout_s=options.timeout,
                memory_bytes=options.memory_limit,
                threads=options.threads,
                sampling=rule,
            ),
            pool=pool,
            recipe=recipes,
            folder=folder / "races",
            observer=console,
            bisected=frozenset(str(canonicalize_name(name)) for name in named),
        )

    question = {
        "name": options.name,
        "tags": options.tag,
        "framework": options.framework,
        "suites": options.suite,
        "backend": options.backend,
        "device": options.device,
        "threads": options.threads,
    }
    if options.torchbench or options.model or options.inputs or options.test != EVAL:
        # Catalogue and options do not determine these; earlier state files do not contain them.
        question["cases"] = {case.name: workload_of(case).digest for case in selection.cases}
    return Subject(lock=lock, question=question, noise=metric.noise, oracle=oracle)


def explain(options: argparse.Namespace) -> int:
    """Prints where the slower competitor loses time.

    Returns:
      0; 1 if a competitor cannot be profiled; the reason is printed.

    Raises:
      UsageError: the results, or the cases or packages that produced them, are missing.
      DefinitionError: see `catalog`.
    """
    if options.again and options.no_profiling:
        raise UsageError("--again and --no-profiling cannot be combined; use one of them")
    document = read_document(options.results)
    console = Console()
    wanted = Profiling(
        results=options.results,
        again=options.again,
        stored_only=options.no_profiling,
        suites=options.suite,
        recorded_python=options.recorded_python,
        timeout_s=options.timeout,
        memory_bytes=options.memory_limit,
    )
    try:
        explanation = explained.explained(
            document,
            wanted,
            console,
            competitors=options.competitors,
            case=options.case,
            device=options.device,
        )
    except NoProfileError as error:
        console.say(f"no profile: {error}", style="red")
        return EXIT_FAILED
    if options.json:
        print(explained.as_json(explanation.explanation))
        return EXIT_OK
    explanation.print(output_screen())
    console.say(f"profiles: {options.results.with_suffix('.profiles')}")
    return EXIT_OK


def repro(options: argparse.Namespace) -> int:
    """Creates a reproducer; returns 0, or 1 if nothing could be exported.

    Raises:
      UsageError: the result is missing or ambiguous, or the directory is in use.
      DefinitionError: see `catalog`.
    """
    return reproduce(
        read_document(options.results),
        case=options.case,
        competitor=options.backend,
        device=options.device,
        suites=options.suite,
        recorded_python=options.recorded_python,
        output=options.output,
        check=options.check,
        timeout_s=options.timeout,
        memory_bytes=options.memory_limit,
    )
