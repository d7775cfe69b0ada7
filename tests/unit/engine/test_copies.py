"""Copies of a worker that a model makes: the original worker continues alone."""

import subprocess
import sys
import textwrap

import pytest

# Our code calls the model's code in another file. A copy of the process would write both outputs.
PROGRAM = """
import functools, multiprocessing, os, sys, threading, time
from comparative_benchmark.engine.worker import isolation

isolation.end_where_we_go_on()
model = {}
exec(compile(%r, "/a/model.py", "exec"), model)
ours = compile(%r, isolation.__file__, "exec")
exec(ours, {"call": model["call"], "os": os, "functools": functools})
"""
OURS = """
try:
    call()
except Exception as error:
    os.write(1, f"{error}\\n".encode())
os.write(1, b"the end\\n")
"""


def lines(model, ours=OURS):
    program = PROGRAM % (textwrap.dedent(model), ours)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split("\n")[:-1]), done.stderr


@pytest.mark.parametrize(
    ("model", "written"),
    [
        ("import os\ndef call():\n  os.fork()", ["the end"]),
        ("import os\ndef call():\n  for _ in range(3): os.fork()", ["the end"]),
        # A copy that raises does not count as a second failure.
        ("import os\ndef call():\n  os.fork()\n  raise ValueError('no')", ["no", "the end"]),
        ("import os\ndef call():\n  if os.fork() == 0: raise SystemExit", ["the end"]),
        # The task of the copy is done.
        (
            (
                "import os\ndef call():\n  if os.fork() == 0: work()\n  else: os.wait()\n"
                "def work():\n  os.write(1, b'worked\\n')"
            ),
            ["the end", "worked"],
        ),
        (
            (
                "import multiprocessing, os\ndef call():\n"
                "  one = multiprocessing.get_context('fork').Process(target=work)\n"
                "  one.start(); one.join(); assert one.exitcode == 0\n"
                "def work():\n  import sys; os.write(1, f'{sys.getprofile()}\\n'.encode())"
            ),
            ["None", "the end"],
        ),
        # Nothing returns to our code from a thread of the model.
        (
            (
                "import os, threading\ndef call():\n"
                "  one = threading.Thread(target=os.fork); one.start(); one.join()"
            ),
            ["the end"],
        ),
    ],
)
def test_a_copy_ends_where_our_code_continues(model, written):
    assert lines(model) == (written, "")


def test_a_copy_that_ours_makes_by_a_function_of_c_ends_too():
    ours = OURS.replace("call()", "functools.partial(os.fork)()", 1)
    assert lines("def call(): pass", ours) == (["the end"], "")
