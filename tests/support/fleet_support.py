"""A fleet whose jobs take no CPU: its `cbs run` sleeps, and writes results."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
from report_support import document, record, run
from tests_support import wait_for

# Stands in for the interpreter of a node. `cbs fleet` is real; `cbs run` is not.
_PYTHON = """\
#!{python} -P
import os, pathlib, runpy, sys, time, uuid
folder = pathlib.Path(__file__).parents[1]
arguments = sys.argv[sys.argv.index("comparative_benchmark") + 1 :]
if arguments[0] == "run":
    output = pathlib.Path(arguments[arguments.index("-o") + 1])
    with (folder / "started").open("a") as file:
        print(output.parent.name, os.getpid(), file=file)
    # Jobs whose arguments have a word of the file take its time.
    words = dict(line.split() for line in (folder / "seconds").read_text().splitlines())
    time.sleep(max(float(s) for word, s in words.items() if word in ("all", *arguments)))
    if (folder / "fails").exists():
        sys.exit((folder / "fails").read_text())
    text = (folder / "results.json").read_text()
    temporary = output.with_suffix(f".{{os.getpid()}}")
    temporary.write_text(text.replace("RUN-ID", str(uuid.uuid4())))
    temporary.rename(output)
else:
    sys.executable = __file__
    sys.argv = ["cbs", *arguments]
    runpy.run_module("comparative_benchmark", run_name="__main__", alter_sys=True)
"""


@attrs.frozen
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """All lines for the user."""
        return [line for line in (self.out + self.err).splitlines() if line.strip()]


class TinyFleet:
    """A FLEET.toml with a fake environment in a separate folder.

    Args:
      folder: an empty folder.
      engine: name of the engine.
      jobs: number of jobs of each class, in batches of one job.
      seconds: time that a job takes.
      options: the lines of `[options]`.
      variables: environment variables of all commands.
      classes: the `[[class]]` tables; `ENVIRONMENT` stands for the line that sets it.
    """

    def __init__(
        self,
        folder: Path,
        engine: str,
        *,
        jobs: int = 3,
        seconds: float = 0.2,
        options: str = "",
        variables: dict[str, str] | None = None,
        classes: str = '[[class]]\nname = "any"\nENVIRONMENT\n',
    ) -> None:
        self.folder = folder
        self.environment = folder / "environment"
        self.variables = {**os.environ, **(variables or {})}
        (self.environment / "bin").mkdir(parents=True)
        python = self.environment / "bin" / "python"
        python.write_text(_PYTHON.format(python=sys.executable))
        python.chmod(0o755)
        (self.environment / "started").touch()
        results = document(record("w1", run_id="RUN-ID"), runs=[run("RUN-ID")])
        (self.environment / "results.json").write_text(json.dumps(results))
        self.take(all=seconds)
        # A model once for each number of iterations. Seven processes fill a batch of one minute.
        runs = "\n".join(
            "[[run]]\n"
            'suite = "cbs_test_plugin.suite"\n'
            'name = "models/TOY_NONE/.+"\n'
            'backends = ["test_numpy"]\n'
            f"processes = 7\nprecision = 0.{number + 1:02}\n"
            for number in range(jobs)
        )
        self.write(
            f'name = "tiny"\nengine = "{engine}"\ncanaries = false\nbatch_minutes = 1\n'
            f"[options]\n{options}\n{runs}\n"
            + classes.replace("ENVIRONMENT", f'environment = "{self.environment}"')
        )

    def write(self, text: str) -> None:
        """Writes FLEET.toml."""
        (self.folder / "FLEET.toml").write_text(text)

    def replace(self, old: str, new: str) -> None:
        """Changes FLEET.toml."""
        path = self.folder / "FLEET.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def take(self, **seconds: float) -> None:
        """Sets the time of jobs that have a word in their arguments; `all` for all others."""
        lines = [f"{word} {number}" for word, number in seconds.items()]
        (self.environment / "seconds").write_text("\n".join(lines))

    @property
    def spool(self) -> Path:
        """The fleet's folder in the spool."""
        return self.folder / "fleet-spool" / "tiny"

    @property
    def started(self) -> list[str]:
        """Keys of the jobs that started, once for each start."""
        lines = (self.environment / "started").read_text().splitlines()
        return [line.partition(" ")[0] for line in lines]

    @property
    def claims(self) -> list[Path]:
        """Claims of all jobs."""
        return list((self.spool / "claims").rglob("[0-9a-f]*.[0-9]"))

    def expire_claims(self) -> None:
        """Makes all claims older than ten minutes; claims of submitted batches stay valid."""
        for claim in self.claims:
            os.utime(claim, (time.time() - 601,) * 2)

    def command(self, verb: str, *arguments: str) -> list[str]:
        """Returns a command line of `cbs fleet`."""
        python = [sys.executable, "-P", "-m", "comparative_benchmark", "fleet"]
        return [*python, verb, str(self.folder / "FLEET.toml"), *arguments]

    def start(self, verb: str, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        """Starts `cbs fleet`."""
        return subprocess.Popen(
            self.command(verb, *arguments),
            env=self.variables,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def cbs(self, verb: str, *arguments: str) -> Done:
        """Runs `cbs fleet` to its end."""
        process = self.start(verb, *arguments)
        out, err = process.communicate(timeout=300)
        done = Done(process.returncode, out, err)
        # Shown if a test fails.
        print(f"{verb}: {done.code}\n{out}{err}")
        return done

    def states(self) -> dict[str, dict[str, Any]]:
        """Returns the standing of each job, by its key."""
        return json.loads(self.cbs("status", "--json").out)

    def count(self, state: str) -> int:
        """Returns how many jobs are in a state."""
        return sum(item["state"] == state for item in self.states().values())

    def forget_queue(self) -> None:
        """Makes the next `status` ask the scheduler."""
        (self.spool / "queue.json").unlink(missing_ok=True)

    def results(self) -> list[dict[str, Any]]:
        """Collects, and returns the runs in the results file; each has one result."""
        self.cbs("collect", "-o", "collected.json")
        content = json.loads((self.folder / "collected.json").read_text())
        assert len(content["benchmarks"]) == len(content["runs"])
        return content["runs"]

    def wait_for_results(self, number: int, seconds: float = 120) -> None:
        """Waits until this number of jobs have results."""
        finished = self.spool / "results"
        wait_for(lambda: len(list(finished.glob("*.json"))) >= number, "results", seconds)

    def wait_for(self, state: str, number: int, seconds: float = 120) -> None:
        """Asks for the status until this number of jobs are in a state."""
        deadline = time.monotonic() + seconds
        while True:
            self.forget_queue()
            if (found := self.count(state)) >= number:
                return
            assert time.monotonic() < deadline, f"{found} of {number} jobs {state}"
            time.sleep(1)
