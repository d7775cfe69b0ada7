"""A campaign: one execution of a fleet. Plans, submits, polls, cancels and resumes."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import msgspec
from filelock import FileLock, Timeout

from comparative_benchmark.analysis.machine.host import git_revision
from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.description import Fleet, MachineClass
from comparative_benchmark.fleet.engines import (
    Engine,
    EngineError,
    FullError,
    QueueEntry,
    RefusedError,
    Submission,
    open_engine,
)
from comparative_benchmark.fleet.features import Node, eligible
from comparative_benchmark.fleet.planning import (
    Job,
    Plan,
    batches_of,
    load_plan,
    plan_jobs,
    save_plan,
    units_of,
)
from comparative_benchmark.fleet.spool import (
    UNREADABLE,
    Attempt,
    Batch,
    End,
    Spool,
    expired,
    read_batch,
)
from comparative_benchmark.fleet.standing import (
    ACTIVE,
    WITHOUT_RESULT,
    Standing,
    State,
    bad_nodes,
    may_retry,
    standings,
)
from openxla.benchmark.files import sha256_of, write_atomically

# Administrators do not want their controllers asked more often.
_BETWEEN_POLLS_S = 30.0
_RECORDED = frozenset({State.TIMEOUT, State.LOST, State.CANCELLED})


@attrs.define(kw_only=True)
class Submitting:
    """The outcome of a submission, or its progress.

    Attributes:
      jobs, batches: numbers of submitted jobs and batches.
      refused: reasons of the scheduler, by class.
      unsupported: reasons, by class, why no node can run its jobs.
      left: number of jobs that wait for room in the queue.
      continues: whether the engine submits them later by itself.
    """

    jobs: int = 0
    batches: int = 0
    refused: dict[str, str] = attrs.field(factory=dict)
    unsupported: dict[str, str] = attrs.field(factory=dict)
    left: int = 0
    continues: bool = False


@attrs.define
class Campaign:
    """A fleet with its spool and engine.

    Attributes:
      fleet: the fleet.
      spool: its folder in the spool.
      engine: the scheduler.
      report: receives problems, one line each.
    """

    fleet: Fleet
    spool: Spool
    engine: Engine
    report: Callable[[str], None]

    @classmethod
    def open(cls, fleet: Fleet, campaign: str, say: Callable[[str], None]) -> "Campaign":
        """Opens a campaign of a fleet.

        Raises:
          UsageError: the engine does not exist.
        """
        folder = fleet.folder / campaign if campaign else fleet.folder
        hosts = [host for item in fleet.classes for host in item.hosts]
        engine = open_engine(fleet.engine, fleet.engine_options, folder, hosts)
        return cls(fleet, Spool(folder), engine, say)

    @property
    def prefix(self) -> str:
        """Start of the names of all batches; differs between spools."""
        return f"cbs-{self.fleet.name}-{self.spool.place}-"

    def make_plan(self, campaign: str) -> Plan:
        """Plans all jobs from FLEET.toml, without writing anything.

        Raises:
          UsageError: a run selects nothing, or an option is invalid.
        """
        return plan_jobs(
            self.fleet,
            units_of(self.fleet, self.report),
            revision=git_revision() or "unknown",
            campaign=campaign,
            durations_s=self.spool.durations_s(),
        )

    def stored_plan(self) -> Plan:
        """Returns the plan that was submitted.

        Raises:
          UsageError: nothing was submitted, or the plan is damaged.
        """
        plan = load_plan(self.spool.plan_file)
        if plan is None:
            raise UsageError(
                f"{self.spool.folder} has no plan; submit one with "
                f"cbs fleet submit {self.fleet.path.name}"
            )
        if plan.file_sha256 != sha256_of(self.fleet.path):
            self.report(f"{self.fleet.path.name} has changed since its jobs were submitted")
        return plan

    def submit(self, campaign: str) -> Submitting:
        """Submits all jobs that were never submitted; doing so twice is the same as once.

        Raises:
          UsageError: the plan is invalid, or the spool cannot be written.
          EngineError: the scheduler does not answer. Nothing is lost.
        """
        plan = self.make_plan(campaign)
        self.spool.create()
        try:
            with FileLock(self.spool.folder / ".plan.lock").acquire(timeout=_BETWEEN_POLLS_S):
                plan = self._stored_with_former(plan)
        except (Timeout, NotImplementedError):
            plan = self._stored_with_former(plan)
        status = self.standings(plan, self._queue(fresh=True))
        # A machine may be back, or have a new feature.
        states = (State.WAITING, State.UNSUPPORTED)
        wanted = [job for job in plan.jobs if status[job.key].state in states]
        return self._submit(plan, wanted, status, campaign)

    def resume(self, campaign: str, *, longer: bool = False) -> Submitting:
        """Submits again the jobs that have no result and are not in the queue.

        Args:
          campaign: name of the campaign.
          longer: whether jobs that exceeded the time limit start once more, with twice the limit.

        Raises:
          UsageError, EngineError: see `submit`.
        """
        plan = self.stored_plan()
        queue = self._queue(fresh=True)
        status = self.standings(plan, queue)
        self._record_ends(status)
        # Slurm holds batches that it could not start, and an administrator may release them.
        lost = {item.batch for item in status.values() if item.batch and item.state is State.LOST}
        self.engine.cancel(sorted(lost & set(queue or ())))
        now = self.spool.now()
        attempts = self.fleet.attempts
        wanted = []
        for job in plan.jobs:
            item = status[job.key]
            doubled = longer and not self._exceeded_before(job.key, item)
            if may_retry(item, attempts, now, longer=doubled):
                wanted.append(job)
        waiting = any(
            item.state in WITHOUT_RESULT and item.attempts < attempts for item in status.values()
        )
        if waiting and not wanted:
            only = "get more time only once" if longer else "require --longer"
            self.report(
                "nothing to retry yet: retries start after a few minutes, and jobs that reached "
                f"their time limit {only}"
            )
        return self._submit(plan, wanted, status, campaign, verb="resume", longer=longer)

    def standings(self, plan: Plan, queue: dict[str, QueueEntry] | None) -> dict[str, Standing]:
        """Returns the standing of each job by its key."""
        return standings(
            plan,
            self.spool.view(),
            queue,
            self.spool.now(),
            read_end=self.spool.read_end,
            claimed_at=self.spool.claimed_at,
            unsupported=self._unsupported(),
        )

    def status(self) -> tuple[Plan, dict[str, Standing]]:
        """Returns the plan and the standing of each job.

        Raises:
          UsageError: nothing was submitted.
        """
        plan = self.stored_plan()
        return plan, self.standings(plan, self._queue(fresh=False))

    def cancel(self) -> int:
        """Cancels all jobs in the queue, and the submission of further ones; returns their number.

        Raises:
          UsageError: nothing was submitted.
          EngineError: the scheduler does not answer.
        """
        plan = self.stored_plan()
        status = self.standings(plan, self._queue(fresh=True))
        active = {key: item for key, item in status.items() if item.state in ACTIVE and item.batch}
        batches = {item.batch for item in active.values() if item.batch}
        # First the jobs that submit more of them.
        later = (f"{self.prefix}submit", f"{self.prefix}resume")
        self.engine.cancel([*later, *sorted(batches)])
        for key, item in active.items():
            self._end(key, item, "cancelled", "by cbs fleet cancel")
        return len(active)

    def fetch(self) -> None:
        """Fetches finished files from nodes without a shared file system."""
        for complaint in self.engine.collect(self.spool.folder):
            self.report(complaint)

    def _exceeded_before(self, key: str, item: Standing) -> bool:
        """Returns whether an attempt before the last one exceeded its time limit."""
        if item.state is not State.TIMEOUT:
            return False
        names = [Attempt(key, number).name for number in range(item.attempts - 1)]
        return any(end.ending == "timeout" for end in self._ends(names))

    def _stored_with_former(self, plan: Plan) -> Plan:
        """Stores a plan with the claimed jobs of the former one: their results may be on the way.

        If neither the file nor the suite changed, it keeps all jobs: another machine planned them.
        """
        old = load_plan(self.spool.plan_file)
        if old is not None:
            jobs = old.by_key()
            if (old.file_sha256, old.revision) != (plan.file_sha256, plan.revision):
                claimed = self.spool.view().claimed
                jobs = {key: job for key, job in jobs.items() if key in claimed}
            plan = attrs.evolve(plan, jobs=tuple((jobs | plan.by_key()).values()))
        save_plan(self.spool.plan_file, plan)
        return plan

    def _submit(
        self,
        plan: Plan,
        jobs: Sequence[Job],
        status: dict[str, Standing],
        campaign: str,
        *,
        verb: str = "submit",
        longer: bool = False,
    ) -> Submitting:
        if not jobs:
            return Submitting()
        nodes = self.engine.nodes()
        view = self.spool.view()
        bad = bad_nodes(
            self._ends(view.ended - view.finished), self._ends(view.ended & view.finished)
        )
        for name, number in bad.items():
            self.report(f"excluded node {name}: {number} attempts failed there, and none succeeded")
        for node in nodes:
            if node.problem:
                self.report(f"excluded: {node.problem}")
        asked = {job.machine_class for job in jobs}
        wanted = [item for item in self.fleet.classes if item.name in asked]
        classes = {item.name: self._nodes_of(item, nodes, bad) for item in wanted}
        unsupported = {
            name: reason for name, chosen in classes.items() if (reason := _none_of(chosen))
        }
        write_atomically(self.spool.folder / "unsupported.json", json.dumps(unsupported))
        usable = classes.keys() - unsupported
        able = [job for job in jobs if job.machine_class in usable]
        queued = {item.batch for item in status.values() if item.state in ACTIVE}
        room = self.engine.room(len(queued))
        done = Submitting(unsupported=unsupported)
        failure: EngineError | None = None
        for batch in batches_of(self.fleet, able):
            name = batch[0].machine_class
            if name in done.refused:
                continue
            # A batch was left because the queue is full.
            if done.left or (room is not None and done.batches >= room):
                done.left += len(batch)
                continue
            names = [node.name for node in nodes]
            try:
                self._submit_batch(batch, classes[name], names, status, done, campaign, longer)
            except EngineError as error:
                if not classes[name].machine_class.hosts:
                    raise
                # The next batch goes to another host.
                failure = error
        done.continues = bool(done.left) and self.engine.continue_later(
            self._command(verb, campaign, longer=longer), f"{self.prefix}{verb}"
        )
        if failure is not None:
            raise failure
        return done

    def _submit_batch(
        self,
        jobs: Sequence[Job],
        chosen: "_Chosen",
        nodes: Sequence[str],
        status: dict[str, Standing],
        done: Submitting,
        campaign: str,
        longer: bool,
    ) -> None:
        claimed = []
        for job in jobs:
            standing = status[job.key]
            # The attempt of an expired claim was never submitted.
            was_claimed = standing.state is State.WAITING and standing.attempts > 0
            attempt = Attempt(job.key, standing.attempts - was_claimed)
            if self.spool.take_over(attempt) if was_claimed else self.spool.claim(attempt):
                claimed.append((job, attempt))
        if not claimed:
            return
        machine_class = chosen.machine_class
        limit_s = machine_class.time_limit_s * (2 if longer else 1)
        name = f"{self.prefix}{uuid.uuid4().hex[:12]}"
        batch = Batch(
            name=name,
            fleet=self.fleet.name,
            campaign=campaign,
            machine_class=machine_class.name,
            engine=self.fleet.engine,
            share=machine_class.share,
            host=machine_class.host,
            time_limit_s=limit_s,
            canaries=self.fleet.canaries,
            jobs=tuple(job.work(attempt.number) for job, attempt in claimed),
        )
        allowed = chosen.for_repeat(jobs[0].repeat)
        submission = Submission(
            name=name,
            file=self.spool.write_batch(batch),
            environment=machine_class.environment,
            setup=machine_class.setup,
            access=machine_class.access,
            nodes=allowed,
            others=tuple(node for node in nodes if node not in allowed),
            time_limit_s=limit_s,
            share=machine_class.share,
            log=self.spool.folder / "logs" / f"{name}.log",
        )
        attempts = [attempt for _, attempt in claimed]
        try:
            engine_id = self.engine.submit(submission)
        except (RefusedError, FullError) as error:
            # After an `EngineError` the batch may be in the queue: `_queue` looks for it there.
            self.spool.batch_file(name).unlink(missing_ok=True)
            self.spool.release(attempts)
            if isinstance(error, FullError):
                done.left += len(claimed)
            else:
                done.refused[machine_class.name] = str(error)
            return
        self.spool.record_submission(name, engine_id, attempts)
        done.jobs += len(claimed)
        done.batches += 1

    def _nodes_of(
        self, machine_class: MachineClass, nodes: Sequence[Node], bad: Iterable[str]
    ) -> "_Chosen":
        known = [node for node in nodes if machine_class.allows(node)]
        fitting = eligible(known, machine_class.requires)
        usable = tuple(node.name for node in fitting if node.up and node.name not in bad)
        return _Chosen(machine_class, bool(fitting), usable)

    def _queue(self, *, fresh: bool) -> dict[str, QueueEntry] | None:
        """Polls the queue, and records batches of submitters that were killed."""
        queue = self._poll(fresh=fresh)
        recorded = {record.batch for record in self.spool.submissions()}
        for name, entry in (queue or {}).items():
            with contextlib.suppress(UsageError):
                if name not in recorded:
                    batch = read_batch(self.spool.batch_file(name))
                    attempts = [Attempt(work.key, work.attempt) for work in batch.jobs]
                    self.spool.record_submission(name, entry.id, attempts)
        return queue

    def _record_ends(self, status: dict[str, Standing]) -> None:
        """Records the ends that only the queue knows, before it forgets them."""
        for key, item in status.items():
            if item.state in _RECORDED and not item.recorded:
                self._end(key, item, item.state.value, item.detail)

    def _end(self, key: str, item: Standing, ending: str, reason: str) -> None:
        self.spool.end(
            Attempt(key, item.attempts - 1),
            End(ending=ending, reason=reason, node=item.node, at=self.spool.now()),  # type: ignore[arg-type]
        )

    def _ends(self, attempts: Iterable[str]) -> Iterator[End]:
        for name in attempts:
            if (end := self.spool.read_end(name)) is not None:
                yield end

    def _unsupported(self) -> dict[str, str]:
        try:
            content = (self.spool.folder / "unsupported.json").read_bytes()
            return msgspec.json.decode(content, type=dict[str, str])
        except UNREADABLE:
            return {}

    def _poll(self, *, fresh: bool) -> dict[str, QueueEntry] | None:
        """Returns the queue; None if the scheduler does not answer.

        Only one process asks the scheduler at a time, and a status uses an answer of the last 30 s.
        """
        try:
            return self._cached_poll(fresh=fresh)
        except EngineError as error:
            if fresh:
                raise
            self.report(str(error))
            return None

    def _cached_poll(self, *, fresh: bool) -> dict[str, QueueEntry]:
        path = self.spool.folder / "queue.json"
        kind = dict[str, QueueEntry]
        if not fresh:
            with contextlib.suppress(*UNREADABLE):
                if not expired(self.spool.now(), path.stat().st_mtime, _BETWEEN_POLLS_S):
                    return msgspec.json.decode(path.read_bytes(), type=kind)
        lock = FileLock(self.spool.folder / ".queue.lock")
        try:
            with lock.acquire(timeout=_BETWEEN_POLLS_S):
                entries = self.engine.poll(self.prefix)
        except (Timeout, NotImplementedError):
            entries = self.engine.poll(self.prefix)
        write_atomically(path, msgspec.json.encode(entries))
        return entries

    def _command(self, verb: str, campaign: str, *, longer: bool) -> list[str]:
        from comparative_benchmark.fleet.host_queue import interpreter

        words = [*interpreter(None), "fleet", verb, str(self.fleet.path), *["--longer"] * longer]
        return [*words, "--campaign", campaign] if campaign else words


@attrs.frozen
class _Chosen:
    """The nodes of a class."""

    machine_class: MachineClass
    exists: bool
    usable: tuple[str, ...]

    def for_repeat(self, repeat: int) -> tuple[str, ...]:
        """Returns the nodes for a repeat, so that repeats run on different nodes if possible."""
        repeats = min(self.machine_class.repeats, len(self.usable))
        return self.usable[repeat % repeats :: repeats]


def _none_of(chosen: _Chosen) -> str:
    """Returns why no node can run jobs of a class; empty if one can."""
    if chosen.usable:
        return ""
    wanted = " or ".join(item.text for item in chosen.machine_class.requires)
    if chosen.exists:
        return f"all nodes{wanted and f' with {wanted}'} are down or excluded"
    return f"no node offers {wanted}" if wanted else "the scheduler lists no nodes for it"
