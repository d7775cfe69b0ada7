"""`cbs bisect` as users run it: real pip, real environments, real races; the index is a folder."""

import json
import os
import signal
import subprocess
import sys
import sysconfig

import attrs
import pytest
from tests_support import python_path
from wheel_support import make_wheel


@attrs.frozen
class Release:
    """A release of the toy compiler.

    Attributes:
      delay_ms: time of its code.
      scale: factor of its outputs.
      compile_ms, ballast_mb: time of a compilation, and memory that it keeps.
      requires: other packages.
    """

    delay_ms: float
    scale: float = 1.0
    compile_ms: float = 0.0
    ballast_mb: int = 0
    requires: tuple[str, ...] = ()

    @property
    def module(self):
        """Its source text."""
        values = attrs.asdict(self, filter=lambda field, _: field.name != "requires")
        return "".join(f"{name.upper()} = {value}\n" for name, value in values.items())


# 1.3 does not install; 1.10 comes after 1.5, in the order of versions, not of text.
_NEWER = {"delay_ms": 4.0, "compile_ms": 400.0, "ballast_mb": 200}
RELEASES = {
    "1.0": Release(2.0),
    "1.1": Release(2.0, compile_ms=400.0),
    "1.2": Release(**_NEWER),
    "1.3": Release(**_NEWER, requires=("a-package-that-is-missing",)),
    "1.4": Release(**_NEWER, scale=1.5),
    "1.5": Release(**_NEWER, scale=1.5),
    "1.10": Release(**_NEWER, scale=1.5),
    "1.11rc1": Release(**_NEWER, scale=1.5),
}

MODEL = '''
"""A model that takes the time and gives the output that its compiler makes it."""

import time

from cbs_test_plugin.model import ToyModel


class Model(ToyModel):
    def compile(self):
        import toy_compiler

        time.sleep(toy_compiler.COMPILE_MS / 1e3)
        self.ballast = b"a" * (toy_compiler.BALLAST_MB * 10**6)

    def forward(self, x):
        try:
            import toy_compiler
        except ImportError:
            # The process that makes the truth has none.
            return super().forward(x)
        until = time.perf_counter() + toy_compiler.DELAY_MS / 1e3
        while time.perf_counter() < until:
            pass
        return super().forward(x) * toy_compiler.SCALE


def create_model(**parameters):
    parameters.pop("fault")
    return Model(**parameters)
'''
SUITE = """
import attrs
from cbs_test_plugin import suite
from openxla.benchmark import def_types

toy = suite.MODELS[0]
MODEL = attrs.evolve(
    toy,
    name="BISECTED",
    model_impl=attrs.evolve(toy.model_impl, name="BISECTED", module_path="bisected_model"),
)
ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(model=MODEL, input_data=suite.ALL_BENCHMARKS[0].input_data)
]
"""


@attrs.frozen
class Bisected:
    """A finished `cbs bisect`."""

    code: int
    out: str
    err: str

    @property
    def races(self):
        """Races that were run."""
        return self.err.count("[1/2]")


@pytest.fixture(scope="module")
def bisect(tmp_path_factory, environment):
    """Runs `cbs bisect` on the toy, with a folder of wheels for an index."""
    here = tmp_path_factory.mktemp("bisect")
    wheels = here / "wheels"
    for version, release in RELEASES.items():
        module = {"toy_compiler.py": release.module}
        make_wheel(wheels, "toy-compiler", version, module, requires=release.requires)
    # The packages of this environment, by a link: workers need numpy and the harness's own.
    ours = sysconfig.get_path("purelib")
    link = {"ours.pth": f"import site; site.addsitedir({ours!r})\n"}
    make_wheel(wheels, "cbs-test-base", "1.0", link)
    (here / "requirements.txt").write_text("cbs-test-base==1.0\ntoy-compiler==1.0\n")
    (here / "bisected_model.py").write_text(MODEL)
    (here / "bisected_suite.py").write_text(SUITE)
    variables = {
        **environment,
        "PYTHONPATH": python_path(here),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
    }

    of_the_suite = ("--suite", "bisected_suite", "-name", "models/BISECTED/.+")

    def run(*arguments, what=of_the_suite, backend="test_numpy", interrupted_after=None):
        command = [sys.executable, "-m", "comparative_benchmark", "bisect", *what]
        command += ["--backend", backend, "--requirements", "requirements.txt"]
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=here,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        seen = ""
        if interrupted_after is not None:
            for line in process.stderr:
                seen += line
                if interrupted_after in line:
                    process.send_signal(signal.SIGINT)
                    break
        out, err = process.communicate(timeout=600)
        return Bisected(process.returncode, out, seen + err)

    run.folder = here
    return run


def _package(good, bad, metric, folder, *more):
    return (
        *("--package", "toy-compiler", "--good", good, "--bad", bad),
        *("--metric", metric, "-o", folder, *more),
    )


@pytest.mark.alone
@pytest.mark.nightly
def test_a_slow_release_is_found_by_races(bisect):
    # Races next to other processes have no winner, so a disturbed bisection is repeated.
    for folder in ("slow", "slow-2", "slow-3"):
        done = bisect(*_package("1.0", "1.2", "latency", folder, "--processes", "3"))
        if "disturbed: other processes used the CPUs" not in done.out:
            break
        assert done.code == 3, done.out + done.err
    else:
        pytest.skip("other processes used the machine during three bisections")
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("toy-compiler became slower in 1.2; the last good candidate is 1.1")
    assert done.races >= 3
    state = json.loads((bisect.folder / folder / "bisection.json").read_text())
    [ends, middle, neighbours] = state["comparisons"]
    assert [entry["answer"] for entry in state["comparisons"]] == ["bad", "good", "bad"]
    slow, fast = (entry["finding"]["cases"][0]["ratio"]["estimate"] for entry in (ends, middle))
    assert slow > 1.5
    assert fast < 1.3
    assert (neighbours["good"], neighbours["candidate"]) == ("1.1", "1.2")
    results = json.loads((bisect.folder / neighbours["finding"]["results"]).read_text())
    races = [r["metrics"]["framework_level"]["race"] for r in results["benchmarks"]]
    assert races[0]["id"] == races[1]["id"]
    assert races[0]["interleaved"] is True


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("compile", "became slower to compile in 1.1; the last good candidate is 1.0"),
        ("memory", "became heavier on memory in 1.2; the last good candidate is 1.1"),
    ],
)
def test_a_release_that_costs_more_elsewhere_is_found(bisect, metric, found):
    done = bisect(*_package("1.0", "1.2", metric, metric, "--processes", "3"))
    assert done.code == 0, done.out + done.err
    assert found in done.out


@pytest.mark.nightly
def test_a_wrong_release_is_found_and_one_that_does_not_install_is_named(bisect):
    done = bisect(*_package("1.0", "1.10", "output", "wrong", "--json", "--keep", "3"))
    # 1.3 is between the last right and the first wrong one: the answer is not exact.
    assert done.code == 3, done.out + done.err
    told = json.loads(done.out)
    assert told["last_good"] == "1.2"
    assert told["first_bad"] == "1.4"
    assert told["suspects"] == ["1.3"]
    assert "skipped: 1.3: installation failed: " in done.err
    assert "a-package-that-is-missing" in done.err
    kept = [path.name for path in (bisect.folder / "wrong" / "environments").iterdir()]
    assert len(kept) <= 3
    assert "removing environment" in done.err
    again = bisect(*_package("1.0", "1.10", "output", "wrong", "--json", "--keep", "3"))
    assert json.loads(again.out) == told
    assert again.races == 0


@pytest.mark.nightly
def test_an_interrupted_bisection_goes_on_where_it_was(bisect):
    asked = _package("1.0", "1.4", "output", "interrupted")
    first = bisect(*asked, interrupted_after="1.4 against 1.0: bad")
    assert first.code == 130, first.out + first.err
    state = bisect.folder / "interrupted" / "bisection.json"
    assert len(json.loads(state.read_text())["comparisons"]) == 1
    second = bisect(*asked)
    assert "resuming after 1 comparison" in second.err
    told = json.loads(state.read_text())
    pairs = [(entry["good"], entry["candidate"]) for entry in told["comparisons"]]
    assert len(pairs) == len(set(pairs))
    assert told["conclusion"]["last_good"] == "1.2"
    ends = list((bisect.folder / "interrupted" / "races").glob("v1_0-v1_4-*.json"))
    assert len(ends) == 1


def test_a_bad_end_that_is_fine_is_reported(bisect):
    done = bisect(*_package("1.0", "1.1", "output", "fine"))
    assert done.code == 3
    assert done.out.startswith("toy-compiler 1.1 is not wrong: nothing to bisect\n")


@pytest.mark.alone
@pytest.mark.nightly
def test_an_end_without_speed_is_an_error_that_says_what_to_ask(bisect):
    done = bisect(*_package("1.0", "1.4", "latency", "other", "--processes", "1"))
    assert done.code == 1
    assert "the good and bad ends cannot be compared" in done.err
    assert "nothing was measured: wrong_output in" in done.err
    assert "--metric output" in done.err


# A slow release makes it wrong; the truth is made without a release.
FOLDER = """
import torch
from torchbenchmark.util.model import BenchmarkModel

try:
    from toy_compiler import DELAY_MS
except ModuleNotFoundError:
    DELAY_MS = 0.0


class Model(BenchmarkModel):
    DEFAULT_EVAL_BSIZE = 4

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        super().__init__(test=test, device=device, batch_size=batch_size, extra_args=extra_args)
        self.net, self.x = torch.nn.Linear(8, 8), torch.randn(self.batch_size, 8)

    def get_module(self):
        return self.net, (self.x,)

    def eval(self):
        return (self.net(self.x) * (1.5 if DELAY_MS > 3 else 1.0),)
"""


@pytest.mark.nightly
def test_a_folder_of_torchbench_is_bisected(bisect):
    folder = bisect.folder / "compiled_net"
    folder.mkdir()
    (folder / "__init__.py").write_text(FOLDER)
    what = ("--torchbench", str(folder))
    done = bisect(
        *_package("1.0", "1.2", "output", "folder"), what=what, backend="pt_inductor:eager"
    )
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("toy-compiler became wrong in 1.2; the last good candidate is 1.1\n")
    state = json.loads((bisect.folder / "folder" / "bisection.json").read_text())
    assert list(state["question"]["cases"]) == [
        "models/compiled_net_EVAL_PT_BATCH4/inputs/INPUT_DATA_MODEL_DEFAULT"
    ]
    # Answers are valid for the former content of the folder.
    (folder / "more.py").touch()
    again = bisect(
        *_package("1.0", "1.2", "output", "folder"), what=what, backend="pt_inductor:eager"
    )
    assert again.code == 1
    assert "belongs to another bisection (cases was" in again.err


OWN = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        try:
            from toy_compiler import DELAY_MS
        except ModuleNotFoundError:
            DELAY_MS = 0.0
        return self.layer(x) * (1.5 if DELAY_MS > 3 else 1.0)


def create_model():
    return Net()


def example_inputs():
    return (torch.ones(4, 8),)
"""


@pytest.mark.nightly
def test_a_model_of_ones_own_is_bisected(bisect):
    (bisect.folder / "my_net.py").write_text(OWN)
    done = bisect(
        *_package("1.1", "1.2", "output", "own"), what=("my_net.py",), backend="pt_inductor:eager"
    )
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("toy-compiler became wrong in 1.2; the last good candidate is 1.1\n")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository of the toy compiler: three commits, the last one wrong."""
    folder = tmp_path_factory.mktemp("toy-compiler")
    variables = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments):
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *who, *arguments], cwd=folder, env=variables, check=True)

    git("init", "--quiet", "--initial-branch", "main")
    for number, scale in enumerate((1.0, 1.0, 1.5)):
        (folder / "toy_compiler.py").write_text(Release(0.1 * number, scale).module)
        git("add", ".")
        git("commit", "--quiet", "--message", f"change {number}")
    return folder


@pytest.mark.nightly
def test_a_wrong_commit_is_found(bisect, repository):
    build = (
        'cp toy_compiler.py "$(python -c "import sysconfig as s; print(s.get_path(\'purelib\'))")"'
    )
    done = bisect(
        *("--git", str(repository), "--build", build, "--package", "toy-compiler"),
        *("--good", "main~2", "--bad", "main", "--metric", "output", "-o", "commits"),
    )
    assert done.code == 0, done.out + done.err
    first = done.out.splitlines()[0]
    assert "toy-compiler became wrong in " in first
    assert first.count("change 2)") == 1
    # The built package is the one that ran: no release of it was installed as well.
    installed = (bisect.folder / "commits" / "logs").glob("install-*.txt")
    assert {path.read_text() for path in installed} == {"cbs-test-base==1.0\n"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--good", "1", "--bad", "2"), "specify what to bisect: --package NAME, or --git REPO"),
        (("--good", "1", "--bad", "2", "--git", "."), "--build CMD must be given together"),
        (
            ("--package", "toy-compiler", "--good", "1.0", "--bad", "9.0"),
            "--bad 9.0: the package index has no toy-compiler 9.0 for this Python",
        ),
        (
            ("--package", "no-such-thing", "--good", "1.0", "--bad", "9.0"),
            "pip cannot list the versions of no-such-thing: No matching distribution",
        ),
        (
            ("--package", "toy-compiler", "--good", "1.0", "--bad", "1.1", "--attempts", "0"),
            "argument --attempts: expected at least 1, got 0",
        ),
    ],
)
def test_what_can_not_be_is_refused_in_a_sentence(bisect, tmp_path, arguments, message):
    done = bisect(*arguments, "-o", str(tmp_path / "state"))
    assert done.code == 1
    assert message in done.err
    assert "Traceback" not in done.err


def test_one_backend_at_a_time(bisect, tmp_path):
    done = bisect(
        *_package("1.0", "1.1", "output", str(tmp_path / "state")), backend="test_numpy,jax_xla"
    )
    assert done.code == 1
    assert "--backend selects 2 backends, expected one" in done.err
