"""Faults in other people's benchmarks: scripts, benchfiles, configurations, folders.

Each fault must affect only itself: other benchmarks keep their results, and no process or file
remains outside the base. Tests record faults with the fixture `planted`; pytest prints at its end
how many there were.
"""

from bench_support import GOOD

from comparative_benchmark.results.record import Status

# The script's further actions, its end, and the message about it.
RUNS = {
    "garbage": (
        f"""os.write(int(os.environ["DATA_FD"]), b'{{"rate": \\xff\\n[1]\\nnull\\n7\\n')
{GOOD}""",
        (Status.OK, "invalid events: 4"),
    ),
    "endless_line": (
        f"""os.write(int(os.environ["DATA_FD"]), b"x" * 3_000_000 + b"\\n")
{GOOD}""",
        (Status.OK, "invalid events: 1"),
    ),
    "flood": (
        f"""for _ in range(300): sys.stdout.write("y" * 100_000 + "\\n")
{GOOD}""",
        (Status.OK, ""),
    ),
    "flood_of_events": (
        f"""for i in range(50_000): emit(task="train", loss=1 / (i + 1))
{GOOD}""",
        (Status.OK, ""),
    ),
    "half_escape": (
        f"""{GOOD}
sys.stdout.write("\\x1b[7:226") ; sys.stdout.flush()""",
        (Status.OK, "invalid events: 1"),
    ),
    "odd_escape": (
        f"""{GOOD}
sys.stdout.write("\\x1b[7:2z")""",
        (Status.OK, "invalid events: 1"),
    ),
    "bad_rates": (
        f"""rates([-1, 0, float("nan"), float("inf"), "fast", None, True])
{GOOD}""",
        (Status.OK, "rates that are not positive numbers: 7"),
    ),
    "backwards": (
        f"""for done in (1, 5, 3, -1, 200): emit(task="train", progress=[done, 100])
{GOOD}""",
        (Status.OK, "progress values out of bounds: 2"),
    ),
    "nan_loss": (
        f"""emit(task="train", loss=1.0); emit(task="train", loss=float("nan"))
{GOOD}""",
        (Status.WRONG_OUTPUT, "loss number 2 was NaN or infinite"),
    ),
    "no_rate": (
        # voir's report on its voirfile, before it still runs the script.
        """print("=" * 80, "voir: An error occurred in an overseer.", "=" * 80, sep="\\n")
print("Traceback (most recent call last):", '  File "voirfile.py", line 1', sep="\\n")
print("ValueError: no number", "    full_key: stop", "=" * 80, "done", sep="\\n")""",
        (Status.FAILED, "the script reported no rates: the voirfile failed: ValueError: no number"),
    ),
    "exit_3": (
        f"""{GOOD}
sys.exit("out of luck")""",
        (Status.FAILED, "exit code 1; last output: out of luck"),
    ),
    "segfault": ("os.kill(os.getpid(), 11)", (Status.CRASHED, "killed by SIGSEGV")),
    "unsteady": (
        "rates([float(2 ** i) for i in range(16)])",
        (Status.UNSTEADY, "the rates never became steady"),
    ),
    "unsteady_and_short": (
        "rates([10.0, 20.0, 40.0] + [100.0] * 7)",
        (Status.UNSTEADY, "at most 2 of 10 rates can be warm-up"),
    ),
    # The hub's immediate error, because it is set to offline mode.
    "offline": (
        """if os.environ["HF_HUB_OFFLINE"]: sys.exit("OSError: see how to run in offline mode")""",
        (Status.FAILED, "the script needed the network, but `run` has no network"),
    ),
    "daemon": (
        f"""if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(987)"], {{}})
    os._exit(0)
time.sleep(0.2)
{GOOD}""",
        (Status.OK, "leftover processes that were killed: 1"),
    ),
    "network": (
        f"""import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
except OSError as error:
    print(error)
{GOOD}""",
        (Status.OK, "the script tried to reach the network"),
    ),
    "kills_keeper": (
        f"""{GOOD}
os.kill(os.getppid(), 9); time.sleep(30)""",
        (Status.FAILED, "the supervisor process was killed"),
    ),
    "closes_its_pipe": (
        f"""{GOOD}
os.close(int(os.environ["DATA_FD"]))""",
        (Status.OK, ""),
    ),
    "sets_the_clock": (
        f"""try:
    time.clock_settime(time.CLOCK_REALTIME, 1e9)
except PermissionError:
    {GOOD}""",
        (Status.OK, ""),
    ),
    "writes_results": (
        f"""try:
    open(os.environ["MILABENCH_BASE"] + "/results.json", "w").close()
except OSError as error:
    print(error)
{GOOD}""",
        (Status.OK, ""),
    ),
    "stops_late": (
        f"""import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{GOOD}
os.write(int(os.environ["DATA_FD"]), b'{{"$event": "stop"}}\\n')
time.sleep(60)""",
        (Status.OK, ""),
    ),
    "hangs": (f"{GOOD}\ntime.sleep(60)", (Status.TIMEOUT, "took longer than 1 s")),
    "hangs_on": (
        f"""import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{GOOD}
time.sleep(60)""",
        (Status.TIMEOUT, "took longer than 1 s"),
    ),
    "reads_secrets": (
        f"""if "CBS_PLANTED_TOKEN" in os.environ: sys.exit("there it is")
{GOOD}""",
        (Status.OK, ""),
    ),
    "good": (GOOD, (Status.OK, "")),
}
BENCHFILES = {
    "raises": ("raise KeyError('x')", "KeyError: 'x'"),
    "no_pack": ("x = 1", "does not set __pack__"),
    "not_python": ("def", "SyntaxError"),
    "exits": ("import sys; sys.exit(9)", "SystemExit: 9"),
    "dies": ("import os; os._exit(7)", "benchfile.py ended too early (exit code 7)"),
    "runs_nothing": (
        """
from milabench.pack import Package
class Idle(Package):
    async def run(self):
        pass
__pack__ = Idle""",
        "the benchfile ran no commands",
    ),
}

# A configuration, and part of the message about it.
WRONG = {
    "a typo": (
        "b: {inherits: _defaults, definitoin: x}",
        ":1:26: unknown key 'definitoin'; did you",
    ),
    "a circle": (
        "a: {inherits: b, definition: x}\nb: {inherits: c}\nc: {inherits: b}",
        "circular inheritance: b -> c -> b",
    ),
    "itself": ("a: {inherits: a}", ":1:5: circular inheritance: a -> a"),
    "nobody": (
        "a: {inherits: _defualts}",
        "unknown benchmark '_defualts'; did you mean _defaults?",
    ),
    "a tag that builds": ("a: !!python/object/apply:os.system ['true']", "is not supported"),
    "an anchor": ("a: &x {b: 1}\nc: *x", "anchors and aliases are not supported"),
    "two of one name": ("a: {definition: x}\na: {definition: y}", ":2:1: duplicate key 'a'"),
    "twice by a hyphen": (
        "a: {install_variant: x, install-variant: y, definition: z}",
        "duplicate key 'install_variant'",
    ),
    "no folder": ("a: {inherits: _defaults}", "benchmark a requires a definition"),
    "nothing to run": ("_a: {definition: x}", "defines no benchmarks; entries whose names begin"),
    "a plan": ("a: {definition: x, plan: {method: per_gpus}}", "did you mean per_gpu?"),
    "no jobs": ("a: {definition: x, plan: {method: njobs, n: 0}}", "positive integer, got 0"),
    "a time": ("a: {definition: x, max_duration: soon}", "max_duration must be a number"),
    "false": ("a: {definition: x, argv: {--flag: false}}", "use `null` to drop an option"),
    "no mapping": ("a: 3", ":1:4: benchmark a must be a mapping"),
    "a file of itself": ("include: c.yaml", "c.yaml includes itself"),
    "a path for a name": ("../a: {definition: x}", "invalid name '../a'"),
    "a path for a group": (
        "a: {definition: x, install_group: ../../b}",
        "invalid install_group '../../b'",
    ),
    "a path for the group that is also its environment's": (
        "a: {definition: x, group: ../../b}",
        ":1:20: invalid group '../../b'",
    ),
    "capabilities without a list": (
        "a: {definition: x, requires_capabilities: gpu}",
        ":1:20: requires_capabilities must be a list of strings",
    ),
    "capabilities that are numbers": (
        "a: {definition: x, requires_capabilities: [1]}",
        "requires_capabilities must be a list of strings",
    ),
    "a capability that is an expression": (
        "a: {definition: x, requires_capabilities: [expr(x)]}",
        "invalid arithmetic expression",
    ),
    "a code point beyond the last": ('a: {definition: "\\U00110000"}', "cannot be read"),
    "a code point of more than 31 bits": ('a: {definition: "\\UFFFFFFFF"}', "cannot be read"),
    "a null character": ('a: {definition: "x\\0"}', ":1:17: null characters and surrogates"),
    "a surrogate": ('"\\ud800": {definition: x}', ":1:1: null characters and surrogates"),
    "an expression that calls": (
        "a: {definition: x, argv: {--n: \"expr(__import__('os').abort())\"}}",
        "invalid arithmetic expression",
    ),
    "an expression that never ends": (
        "a: {definition: x, argv: {--n: 'expr(9**9**9**9)'}}",
        "invalid arithmetic expression",
    ),
    "a system that is a number": ("a: {definition: x, system: 3}", "system must be a mapping"),
    "not YAML": ("a: [1", "invalid YAML"),
    "empty": ("", "is empty"),
}

# Planted by separate tests.
OTHERS = (
    *("a prepare that fills the disk", "a link out of the collection", "two machines"),
    *("a requirement that cannot be installed", "a parent that is killed", "Ctrl-C", "SIGTERM"),
    *("two folders of one name", "more processes than the machine can take", "an unknown tag"),
    *("an override without a target", "a system that is not one"),
)

# The faults of issue 18, and those that are planted.
NAMED = {
    "a misspelt key": ["a typo"],
    "a cycle in inherits": ["a circle", "itself", "a file of itself"],
    "an unknown tag": ["an unknown tag"],
    "a plan for more devices than there are": ["more processes than the machine can take"],
    "garbage on the data channel": ["garbage", "odd_escape"],
    "a flood on the data channel": ["flood", "endless_line", "flood_of_events"],
    "half an escape sequence": ["half_escape"],
    "a NaN loss": ["nan_loss"],
    "a rate that never comes": ["no_rate", "hangs"],
    "negative or decreasing progress": ["backwards"],
    "a requirement that cannot be installed": ["a requirement that cannot be installed"],
    "a prepare that fills the disk": ["a prepare that fills the disk"],
    "a benchfile.py that raises": ["raises", "not_python", "exits", "dies", "no_pack"],
    "two folders of one name": ["two folders of one name", "two of one name"],
    "a symlink out of the folder": ["a link out of the collection"],
    "a script that forks daemons": ["daemon"],
    "a script that ignores SIGTERM": ["stops_late", "hangs_on"],
    "a script that changes the clock": ["sets_the_clock"],
    "a script that writes into our results": ["writes_results"],
    "YAML never evaluates code": ["a tag that builds", "an anchor", "an expression that calls"],
    "a clean environment": ["reads_secrets"],
}
