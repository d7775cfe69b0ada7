"""Measures time and memory for simulated fleets with up to a million jobs and many faults.

The planner, spool, poller, campaign and collector are the real ones; the spool is a real folder, in
memory if possible. Only the cluster and its clock are simulated. Each size runs in a separate
process, which reports its peak memory.

Schedulers and shared file systems have these faults: nodes that fail, in maintenance or bad,
preemption, launch failures, time limits, half-written, late and foreign files, a controller that
does not answer, killed submitters and collectors, and two submitters at once. Afterwards each job
must have exactly one result.

    python benchmarks/fleet_simulation.py [--quick]
"""

import argparse
import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
from _fleet_cluster import Cluster, Killed, SimulatedSpool, fleet_of, result_of, units
from _timing import print_goal, print_table

from comparative_benchmark.fleet import collecting
from comparative_benchmark.fleet.campaign import Campaign
from comparative_benchmark.fleet.engines import EngineError
from comparative_benchmark.fleet.planning import Plan, batches_of, load_plan, plan_jobs, save_plan
from comparative_benchmark.fleet.spool import Attempt, End, Spool, read_batch
from comparative_benchmark.fleet.standing import State
from comparative_benchmark.results.results_file import plain, read_document

SIZES = (10**3, 10**4, 10**5, 10**6)
# Beyond this size, files have no content, and nothing is collected.
LARGEST_COLLECTED = 10**5
FAULTS = 10_000
_CLASSES, _REPEATS = 10, 5
_FAULTY_JOBS = 500
_RATE = 0.6
_MOST_ROUNDS = 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="simulate small fleets and 200 faults")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs="*", help="numbers of jobs to simulate")
    parser.add_argument("--faults", type=int, help="number of faults to simulate")
    options = parser.parse_args()
    if options.size:
        with _folder() as folder:
            print(json.dumps(_measured(options.size, folder)))
        return 0
    sizes = SIZES[:2] if options.quick else SIZES
    sizes = sizes if options.sizes is None else tuple(options.sizes)
    found = {size: _in_process(size) for size in sizes}
    phases = list(dict.fromkeys(phase for one in found.values() for phase in one))
    print_table(
        ["CPU seconds", *(f"{size} jobs" for size in sizes)],
        [[phase, *(f"{found[n].get(phase, float('nan')):.2f}" for n in sizes)] for phase in phases],
    )
    print()
    _print_goals(found)
    wanted = options.faults if options.faults is not None else 200 if options.quick else FAULTS
    if wanted:
        _print_faults(wanted)
    return 0


def _print_goals(found: dict[int, dict[str, float]]) -> None:
    if large := found.get(10**5):
        for phase, goal in {"plan": 10.0, "poll": 2.0, "collect": 60.0}.items():
            print_goal(
                f"{phase} 100000 jobs < {goal:g} s",
                met=large[phase] < goal,
                found=f"{large[phase]:.2f} s",
            )
        if small := found.get(10**4):
            ratios = {phase: large[phase] / small[phase] for phase in _TIMED}
            worst = max(ratios, key=lambda phase: ratios[phase])
            print_goal(
                "100000 jobs take at most 15 x the time of 10000, in each phase",
                met=ratios[worst] <= 15,
                found=f"{ratios[worst]:.1f} x at worst, {worst}",
            )
    if huge := found.get(10**6):
        print_goal(
            "at most 2 GiB for 1000000 jobs",
            met=huge[_PEAK] <= 2048,
            found=f"{huge[_PEAK]:.0f} MiB",
        )


_TIMED = ("plan", "submit", "poll", "collect")
_PEAK = "peak memory, MiB"


def _in_process(size: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--size", str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cbs-fleet-simulation-", dir=place) as folder:
        yield Path(folder)


@attrs.define
class SimulatedCampaign(Campaign):
    """A campaign of made-up workloads."""

    workloads: int = attrs.field(default=1, kw_only=True)

    def make_plan(self, campaign: str) -> Plan:
        """Plans made-up workloads."""
        return plan_jobs(
            self.fleet,
            units(self.workloads),
            revision="r",
            campaign=campaign,
            durations_s=self.spool.durations_s(),
        )


def _opened(
    folder: Path, cluster: Cluster, workloads: int, *, classes: int, repeats: int
) -> SimulatedCampaign:
    fleet = fleet_of(folder, classes=classes, repeats=repeats)
    spool = SimulatedSpool(fleet.folder, lambda: cluster.now)
    cluster.spool = spool
    return SimulatedCampaign(fleet, spool, cluster, lambda _: None, workloads=workloads)


def _measured(size: int, folder: Path) -> dict[str, float]:
    """Returns the CPU time of each phase, and the peak memory of this process."""
    cluster = Cluster(nodes=100, seed=0, rate=0.0, limit=None)
    workloads = size // (_CLASSES * _REPEATS)
    campaign = _opened(folder, cluster, workloads, classes=_CLASSES, repeats=_REPEATS)
    spool = campaign.spool
    figures: dict[str, float] = {}

    def timed(phase: str, action: Callable[[], Any]) -> Any:
        start = time.process_time()
        value = action()
        figures[phase] = time.process_time() - start
        return value

    plan = timed("plan", lambda: campaign.make_plan(""))
    batches = timed("pack batches", lambda: batches_of(campaign.fleet, plan.jobs))
    assert sum(map(len, batches)) == size
    spool.create()
    timed("save plan", lambda: save_plan(spool.plan_file, plan))
    if size <= LARGEST_COLLECTED:
        del plan, batches
        done = timed("submit", lambda: campaign.submit(""))
        assert done.jobs == size
        _finish_all(spool)
        cluster.now += 3600.0
    else:
        for digits in range(256):
            (spool.folder / "claims" / f"{digits:02x}").mkdir()
        for batch in batches:
            attempts = [Attempt(job.key, 0) for job in batch]
            for attempt in attempts:
                os.mkdir(f"{spool.folder}/claims/{attempt.key[:2]}/{attempt.name}")  # noqa: PTH102
            spool.record_submission(batch[0].key, "1", attempts)
        _link_all(spool, [job.key for job in plan.jobs])
        del plan, batches
    _, found = timed("poll", campaign.status)
    counts = Counter(item.state for item in found.values())
    assert counts[State.DONE] + counts[State.FAILED] == size
    assert counts[State.FAILED] == (size // 50 if size <= LARGEST_COLLECTED else 0)
    del found
    plan = timed("load plan", lambda: load_plan(spool.plan_file))
    if size <= LARGEST_COLLECTED:
        output = folder / "results.json"
        added = timed("collect", lambda: collecting.collect(plan, spool, output))
        assert added.results == counts[State.DONE]
        assert not added.damaged
        again = timed("collect again", lambda: collecting.collect(plan, spool, output))
        assert (again.results, again.known) == (0, added.results)
        done = timed("resume", lambda: campaign.resume(""))
        assert done.jobs == counts[State.FAILED]
    figures[_PEAK] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def _finish_all(spool: Spool) -> None:
    """Ends all submitted jobs: one of 50 without results."""
    number = 0
    for path in (spool.folder / "batches").iterdir():
        batch = read_batch(path)
        for work in batch.jobs:
            number += 1
            name = f"{work.key}.{work.attempt}"
            end = End(ending="done" if number % 50 else "failed", node="node001", at=spool.now())
            (spool.folder / "ends" / f"{name}.json").write_text(json.dumps(plain(end)))
            if number % 50:
                spool.result_file(name).write_bytes(result_of(batch, work, "node001", 0))


def _link_all(spool: Spool, keys: list[str]) -> None:
    """Ends all jobs by files without content: polls read only their names."""
    for folder in ("results", "ends"):
        empty = spool.folder / folder / ".empty"
        empty.touch()
        for key in keys:
            os.link(empty, spool.folder / folder / f"{key}.0.json")


def _print_faults(wanted: int) -> None:
    faults: Counter[str] = Counter()
    lost = twice = jobs = 0
    start = time.process_time()
    seed = 0
    while faults.total() < wanted:
        with _folder() as folder:
            found, missing, doubled = _faulty_campaign(folder, seed)
        faults += found
        lost, twice, jobs = lost + missing, twice + doubled, jobs + _FAULTY_JOBS
        seed += 1
    print()
    print_table(["fault", "times"], [[name, str(n)] for name, n in sorted(faults.items())])
    print(f"{seed} campaigns, {jobs} jobs, {time.process_time() - start:.0f} CPU s\n")
    print_goal(
        f"{wanted} simulated faults: 0 results lost, 0 twice",
        met=lost == twice == 0,
        found=f"{faults.total()} faults, {lost} lost, {twice} twice",
    )


def _faulty_campaign(folder: Path, seed: int) -> tuple[Counter[str], int, int]:
    """Returns faults, and the numbers of lost and doubled results of one campaign."""
    cluster = Cluster(nodes=20, seed=seed, rate=_RATE, limit=50)
    choose = random.Random(seed)
    first, second = (
        _opened(folder, cluster, _FAULTY_JOBS // 4, classes=2, repeats=2) for _ in range(2)
    )
    output = folder / "results.json"

    def other_submitter() -> None:
        if choose.random() < 0.02:
            cluster.faults["two submitters at once"] += 1
            cluster.on_submit, interrupted = lambda: None, cluster.on_submit
            try:
                with contextlib.suppress(EngineError):
                    second.resume("", longer=True)
            finally:
                cluster.on_submit = interrupted

    def collect() -> None:
        collecting.collect(first.stored_plan(), first.spool, output)

    actions: list[Callable[[], Any]] = [
        lambda: first.submit(""),
        lambda: first.resume("", longer=True),
        first.status,
        collect,
    ]
    cluster.on_submit = other_submitter
    _attempt(lambda: first.submit(""))
    for _ in range(_MOST_ROUNDS):
        cluster.advance(choose.choice([30.0, 120.0, 600.0, 3600.0]))
        _attempt(choose.choice(actions))
        if cluster.idle and first.spool.plan_file.exists() and choose.random() < 0.2:
            _, found = _attempt(first.status) or (None, {})
            if found and all(item.state is State.DONE for item in found.values()):
                _attempt(collect)
                _, found = _attempt(first.status) or (None, {})
                if all(item.state is State.DONE for item in found.values()):
                    break
    collect()
    collect()
    plan = first.stored_plan()
    document = read_document(output)
    owners = {run.run_id: run.allocation.job for run in document.runs}  # type: ignore[union-attr]
    times = Counter(owners[result.run_id] for result in document.benchmarks)
    return (
        +cluster.faults,
        sum(times[job.key] == 0 for job in plan.jobs),
        sum(times[job.key] > 1 for job in plan.jobs),
    )


def _attempt(action: Callable[[], Any]) -> Any:
    """Calls a command that the simulation may kill, or that the scheduler does not answer."""
    try:
        return action()
    except (Killed, EngineError):
        return None


if __name__ == "__main__":
    raise SystemExit(main())
