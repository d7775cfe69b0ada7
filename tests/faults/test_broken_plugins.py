"""A broken plug-in costs one line in every command; definitions never decide the exit code."""

import subprocess
import sys

import pytest
from tests_support import python_path

NAME = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/.+"
# How a module breaks, and what the line about it contains.
BROKEN = {
    "raises": ("raise ValueError('no\\nluck')", "ValueError: no luck"),
    "import_error": ("import a_module_that_is_missing", "ModuleNotFoundError: No module named"),
    "syntax": ("def broken(:", "SyntaxError"),
    "leaves": ("raise SystemExit(0)", "SystemExit: 0"),
    "leaves_by_sys": ("import sys; sys.exit()", "SystemExit"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "base_exception": ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
    "exits_at_once": ("import os; os._exit(0)", "exit code 0"),
    "aborts": ("import os; os.abort()", "SIGABRT"),
    "crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "kills_its_group": ("import os, signal; os.killpg(0, signal.SIGKILL)", "SIGKILL"),
    "recurses": ("def f(): f()\nf()", "RecursionError"),
    "escapes": ("raise ValueError('\\x1b]0;title\\x07 \\udce9')", "ValueError: "),
    "closes_streams": (
        "import os\nfor n in (0, 1, 2): os.close(n)\nraise ValueError",
        "ValueError",
    ),
    "prints_and_exits": ("import os; print('fine'); os._exit(3)", "exit code 3"),
    "without_object": ("", "AttributeError"),
    "of_another_class": ("THING = 7", "is a int, not a"),
}
GROUPS = {
    "backend": "comparative_benchmark.backends",
    "recipe": "comparative_benchmark.recipes",
    "operator": "openxla.benchmark.operators",
    "suite": "openxla.benchmark.suites",
}
# Commands that use registered objects, and the groups that they load.
COMMANDS = {
    "backends": (("backends",), ("backend", "recipe")),
    "list": (("list", "-name", NAME), ("suite",)),
    "dry run": (("run", "-name", NAME, "--backend", "inductor", "--dry-run"), ("backend", "suite")),
    "micro list": (("micro", "list"), ("operator",)),
}


@pytest.fixture(scope="module")
def plugged(tmp_path_factory):
    """Returns a function that makes a folder with a plug-in that has a given fault."""
    made = {}

    def plugged(how, kinds):
        if (how, kinds) not in made:
            folder = made[how, kinds] = tmp_path_factory.mktemp("site")
            (folder / "broken_plugin.py").write_text(BROKEN[how][0])
            info = folder / "broken_plugin-0.1.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(
                "Metadata-Version: 2.1\nName: broken-plugin\nVersion: 0.1\n"
            )
            points = [
                f"[{GROUPS[kind]}]\nbroken-{kind} = broken_plugin{':THING' * (kind != 'suite')}\n"
                for kind in kinds
            ]
            (info / "entry_points.txt").write_text("\n".join(points))
        return made[how, kinds]

    return plugged


@pytest.fixture
def run(tmp_path, environment):
    """Runs `cbs` with a folder on its path."""

    def run(folder, *arguments):
        return subprocess.run(
            [sys.executable, "-P", "-m", "comparative_benchmark", *arguments],
            cwd=tmp_path,
            env={
                **environment,
                "PYTHONPATH": python_path(folder),
                "CBS_ROOT_DIR": str(tmp_path / "root"),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def _cases():
    for how in BROKEN:
        for command, (_, kinds) in COMMANDS.items():
            for kind in kinds:
                if (how, kind) in {("without_object", "suite"), ("of_another_class", "suite")}:
                    continue
                # In the default tier, every command meets one fault, and one command some faults.
                some = how in ("raises", "leaves", "interrupts", "crashes", "of_another_class")
                shown = how == "exits_at_once" or (
                    some and (command, kind) == ("backends", "backend")
                )
                marks = () if shown else (pytest.mark.nightly,)
                yield pytest.param(how, command, kind, marks=marks)


@pytest.mark.parametrize(("how", "command", "kind"), list(_cases()))
def test_a_broken_plugin_is_one_line(plugged, run, how, command, kind):
    arguments, _ = COMMANDS[command]
    done = run(plugged(how, (kind,)), *arguments)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout
    [line] = [line for line in done.stderr.splitlines() if line.startswith("left out: ")]
    assert line.startswith(f"left out: broken-plugin 0.1: broken-{kind}: ")
    assert BROKEN[how][1] in line
    assert line.isprintable()


def test_a_sound_plugin_is_imported_in_a_child_once(plugged, run, tmp_path):
    folder = plugged("of_another_class", ("recipe",))
    mark = tmp_path / "imported"
    (folder / "broken_plugin.py").write_text(
        f"open({str(mark)!r}, 'a').write('x')\nfrom cbs_test_plugin import BACKEND as THING\n"
    )
    info = folder / "broken_plugin-0.1.dist-info" / "entry_points.txt"
    info.write_text(f"[{GROUPS['backend']}]\nsound = broken_plugin:THING\n")
    for imports in (2, 3):
        done = run(folder, "backends")
        assert "left out" not in done.stderr
        assert "test_numpy" in done.stdout
        assert len(mark.read_text()) == imports
    (folder / "broken_plugin.py").write_text("raise SystemExit(0)")
    done = run(folder, "backends")
    assert "left out: broken-plugin 0.1: sound: SystemExit: 0\n" in done.stderr


def test_a_plugin_does_not_set_the_variables_of_its_rivals(plugged, environment):
    folder = plugged("interrupts", ("backend",))
    (folder / "broken_plugin.py").write_text(
        "import os\n"
        "os.environ.update(ATEN_CPU_CAPABILITY='default', HOME='/nowhere')\n"
        "del os.environ['LANG']\n"
        "from cbs_test_plugin import BACKEND as THING\n"
    )
    program = (
        "import os\n"
        "from openxla.benchmark import plugins\n"
        f"found = [p.name for p in plugins.plugins({GROUPS['backend']!r}, built_in=False)]\n"
        "names = ('ATEN_CPU_CAPABILITY', 'HOME', 'LANG')\n"
        "print('broken-backend' in found, *map(os.environ.get, names))"
    )
    variables = {**environment, "PYTHONPATH": python_path(folder), "HOME": "/home", "LANG": "C"}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "True None /home C\n"


@pytest.mark.parametrize("place", ["folder", "module", "framework folder"])
@pytest.mark.parametrize(
    "how", ["leaves", "leaves_by_sys", "exits_at_once", "interrupts", "crashes", "base_exception"]
)
@pytest.mark.parametrize("command", ["list", pytest.param("run", marks=pytest.mark.nightly)])
def test_definitions_never_decide_the_exit_code(run, tmp_path, place, how, command):
    if place == "folder":
        file, suite = tmp_path / "suite" / "a_definitions.py", ("--suite-dir", "suite")
    elif place == "module":
        file, suite = tmp_path / "site" / "a_module.py", ("--suite", "a_module")
    else:
        file = tmp_path / "suite" / "jax" / "benchmark_definitions.py"
        suite = ("--suite-dir", "suite")
    file.parent.mkdir(parents=True)
    file.write_text(BROKEN[how][0])
    arguments = ("--backend", "inductor", "-device", "host-cpu") if command == "run" else ()
    done = run(tmp_path / "site", command, *suite, *arguments)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert BROKEN[how][1] in done.stderr
    assert "suite" in done.stderr
