"""`cbs fleet`: plans, submits and collects the jobs of many machines."""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.errors import (
    EXIT_FAILED,
    EXIT_MISSING,
    EXIT_OK,
    EXIT_UNFINISHED,
    EXIT_WRONG,
    UsageError,
)
from comparative_benchmark.fleet import collecting, fleet_tables, host_queue, judging, node
from comparative_benchmark.fleet.campaign import Campaign, Submitting
from comparative_benchmark.fleet.description import Fleet, read_fleet
from comparative_benchmark.fleet.engines import EngineError
from comparative_benchmark.fleet.planning import Job, Plan, batches_of, load_plan
from comparative_benchmark.fleet.spool import Spool, read_batch
from comparative_benchmark.fleet.standing import ACTIVE, WITHOUT_RESULT, Standing, State, counts
from comparative_benchmark.results.comparing.compare import competitor_among
from comparative_benchmark.results.results_file import plain, read_document
from comparative_benchmark.terminal.screen import Screen

_MOST_SHOWN = 20
_CAMPAIGN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")


def run(options: argparse.Namespace) -> int:
    """Runs a subcommand.

    Raises:
      UsageError: the description is invalid, or the scheduler does not respond.
    """
    hosts: dict[str, Callable[[argparse.Namespace], int]] = {
        "node": _node,
        "runner": _runner,
        "agent": _agent,
        "judge": _judge,
    }
    if options.action in hosts:
        return hosts[options.action](options)
    if options.campaign and not _CAMPAIGN.fullmatch(options.campaign):
        raise UsageError(
            f"--campaign {options.campaign!r}: use 1-61 letters, digits, . _ - (not . _ - first)"
        )
    fleet = read_fleet(options.fleet)
    if options.action == "collect" and options.exported:
        return _collect_exported(options, fleet)
    campaign = Campaign.open(fleet, options.campaign, _say)
    actions: dict[str, Callable[[argparse.Namespace, Fleet, Campaign], int]] = {
        "plan": _plan,
        "submit": _submit,
        "status": _status,
        "collect": _collect,
        "resume": _resume,
        "cancel": _cancel,
        "export": _export,
    }
    return actions[options.action](options, fleet, campaign)


def _plan(options: argparse.Namespace, fleet: Fleet, campaign: Campaign) -> int:
    plan = campaign.make_plan(options.campaign)
    batches = batches_of(fleet, plan.jobs)
    if options.json:
        print(json.dumps({**plain(plan), "batches": [[j.key for j in b] for b in batches]}))
        return EXIT_OK
    for item in fleet.classes:
        jobs = [job for job in plan.jobs if job.machine_class == item.name]
        number = sum(batch[0].machine_class == item.name for batch in batches)
        hours = sum(job.expected_s for job in jobs) / 3600
        trials = sum(job.trials for job in jobs)
        print(
            f"{item.name}: {_many(len(jobs), 'job')} ({_many(trials, 'trial')}) in "
            f"{_many(number, 'batch')}, about {hours:.1f} h of machine time"
        )
    return EXIT_OK


def _submit(options: argparse.Namespace, _: Fleet, campaign: Campaign) -> int:
    return _print_submitting(campaign.submit(options.campaign))


def _resume(options: argparse.Namespace, _: Fleet, campaign: Campaign) -> int:
    campaign.fetch()
    return _print_submitting(campaign.resume(options.campaign, longer=options.longer))


def _print_submitting(done: Submitting) -> int:
    print(f"submitted: {_many(done.jobs, 'job')} in {_many(done.batches, 'batch')}")
    for name, reason in done.unsupported.items():
        print(f"unsupported: class {name}: {reason}")
    for name, reason in done.refused.items():
        print(f"refused: class {name}: {reason}")
    if done.left:
        later = (
            "a queued job will submit them later"
            if done.continues
            else "run the command again when the queue has room"
        )
        print(f"the queue is full: {_many(done.left, 'job')} not submitted; {later}")
    if done.refused:
        return EXIT_FAILED
    return EXIT_MISSING if done.unsupported else EXIT_OK


def _status(options: argparse.Namespace, _: Fleet, campaign: Campaign) -> int:
    campaign.fetch()
    plan, status = campaign.status()
    if options.json:
        jobs = {key: {**plain(item), "state": item.state.value} for key, item in status.items()}
        print(json.dumps(jobs))
    else:
        _print_standings(plan, status)
    return _exit_code(status)


def _print_standings(plan: Plan, status: dict[str, Standing]) -> None:
    for state, number in counts(status.values()).items():
        print(f"{state.value:<12} {number}")
    pending = (item.detail for item in status.values() if item.state is State.PENDING)
    for reason, number in Counter(filter(None, pending)).most_common(_MOST_SHOWN):
        print(f"pending: {_many(number, 'job')}: {reason}")
    shown = [job for job in plan.jobs if status[job.key].state in _TO_EXPLAIN]
    for job in shown[:_MOST_SHOWN]:
        print(_line(job, status[job.key]))
    if len(shown) > _MOST_SHOWN:
        print(f"and {len(shown) - _MOST_SHOWN} more; --json prints all")


_TO_EXPLAIN = WITHOUT_RESULT | {State.UNSUPPORTED}


def _line(job: Job, item: Standing) -> str:
    place = f" on {item.node}" if item.node else ""
    reason = f": {item.detail}" if item.detail else ""
    repeat = f", repeat {job.repeat + 1}" if job.repeat else ""
    tried = f" after {_many(item.attempts, 'attempt')}" if item.attempts > 1 else ""
    return f"{item.state.value}{place}{tried}: {job.label} ({job.machine_class}{repeat}){reason}"


def _collect(options: argparse.Namespace, fleet: Fleet, campaign: Campaign) -> int:
    campaign.fetch()
    plan = campaign.stored_plan()
    done = _merge(options, fleet, plan, campaign.spool)
    try:
        _, status = campaign.status()
    except EngineError as error:
        raise UsageError(str(error)) from error
    _print_missing(plan, done, status)
    return _exit_code(status)


def _collect_exported(options: argparse.Namespace, fleet: Fleet) -> int:
    spool = Spool(options.exported)
    plan = load_plan(spool.plan_file)
    if plan is None:
        raise UsageError(f"{options.exported} has no plan; create one with `cbs fleet export`")
    done = _merge(options, fleet, plan, spool)
    status = {
        job.key: Standing(State.DONE) if job.key in done.jobs else _without_queue(job, spool)
        for job in plan.jobs
    }
    _print_missing(plan, done, status)
    return _exit_code(status)


def _without_queue(job: Job, spool: Spool) -> Standing:
    """Returns the standing of an exported job without a result: its only attempt may have ended."""
    end = spool.read_end(f"{job.key}.0")
    if end is None:
        return Standing(State.WAITING)
    state = State.DAMAGED if end.ending == "done" else State(end.ending)
    return Standing(state, 1, detail=end.reason, node=end.node)


def _merge(
    options: argparse.Namespace, fleet: Fleet, plan: Plan, spool: Spool
) -> collecting.Collected:
    name = "-".join(filter(None, (fleet.name, options.campaign)))
    output = options.output or Path("results") / f"{name}.json"
    done = collecting.collect(plan, spool, output)
    known = f", {done.known} already known" if done.known else ""
    print(f"{_many(done.results, 'new result')}{known}: {output}")
    if done.restarted:
        print(f"{_many(len(done.restarted), 'job')} finished only after a restart")
    if done.shared:
        print(f"{_many(done.shared, 'result')} from shared nodes: kept, but not ranked")
    for file, reason in done.damaged.items():
        print(f"damaged: {file}: {reason}")
    for file in done.foreign[:_MOST_SHOWN]:
        print(f"not from any job: {file}")
    return done


def _print_missing(plan: Plan, done: collecting.Collected, status: Mapping[str, Standing]) -> None:
    missing = [job for job in plan.jobs if job.key not in done.jobs]
    for job in missing[:_MOST_SHOWN]:
        print(f"missing: {_line(job, status[job.key])}")
    if len(missing) > _MOST_SHOWN:
        print(f"missing: {len(missing) - _MOST_SHOWN} more; see cbs fleet status --json")


def _judge(options: argparse.Namespace) -> int:
    """Returns 2 if a class is significantly slower, 3 without any verdict.

    Raises:
      UsageError: a file cannot be read, or no result is from the baseline.
    """
    documents = [read_document(path) for path in options.results]
    before = read_document(options.since) if options.since else None
    known = {result.definition.competitor for each in documents for result in each.benchmarks}
    baseline = options.baseline and competitor_among(options.baseline, sorted(known))
    verdicts = [
        item
        for document in documents
        for item in (
            judging.changes(before, document, threshold=options.threshold)
            if before
            else judging.class_verdicts(document, baseline, threshold=options.threshold)
        )
    ]
    slow = judging.slow_nodes_by_class(documents)
    if options.json:
        print(json.dumps(fleet_tables.as_json(verdicts, slow), indent=2, allow_nan=False))
    else:
        fleet_tables.print_verdicts(verdicts, Screen())
        for line in fleet_tables.slow_node_lines(slow):
            print(line)
    if options.since and any(item.verdict is Verdict.SLOWER for item in verdicts):
        return EXIT_WRONG
    return EXIT_OK if verdicts else EXIT_MISSING


def _cancel(_: argparse.Namespace, __: Fleet, campaign: Campaign) -> int:
    print(f"cancelled: {_many(campaign.cancel(), 'job')}")
    return EXIT_OK


def _export(options: argparse.Namespace, fleet: Fleet, campaign: Campaign) -> int:
    from comparative_benchmark.fleet.exports import export_fleet

    plan = campaign.make_plan(options.campaign)
    file = export_fleet(
        fleet, plan, options.target, options.output, install=options.install, image=options.image
    )
    print(f"{file}: {_many(len(plan.jobs), 'job')} for {options.target}")
    return EXIT_OK


def _exit_code(status: Mapping[str, Standing]) -> int:
    """Returns 0 if all jobs are done, 4 if some are unfinished, 1 or 3 if some have no result."""
    states = {item.state for item in status.values()}
    if states & WITHOUT_RESULT:
        return EXIT_FAILED
    if states & (ACTIVE | {State.WAITING}):
        return EXIT_UNFINISHED
    return EXIT_MISSING if State.UNSUPPORTED in states else EXIT_OK


def _node(options: argparse.Namespace) -> int:
    folder = options.batch.absolute().parents[1]
    failed = node.run_batch(Spool(folder), read_batch(options.batch))
    return EXIT_FAILED if failed else EXIT_OK


def _runner(options: argparse.Namespace) -> int:
    host_queue.HostQueue(options.folder).run()
    return EXIT_OK


def _agent(_: argparse.Namespace) -> int:
    try:
        print(json.dumps(host_queue.answer(json.load(sys.stdin))))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"malformed request: {error}") from error
    return EXIT_OK


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def _say(line: str) -> None:
    print(f"cbs: {line}", file=sys.stderr)
