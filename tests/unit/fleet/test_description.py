"""FLEET.toml: every key, and one line with file and line for every mistake."""

import re
from pathlib import Path

import attrs
import pytest
from documents_support import blocks

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.description import Fleet, MachineClass, read_fleet

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "fleet.md").read_text()
RUN = '[[run]]\nname = "models/X"\n'
CLASS = '[[class]]\nname = "a"\n'
SMALL = RUN + CLASS
EVERY_KEY = """
name = "zoo"
spool = "spool"
engine = "slurm"
attempts = 5
batch_minutes = 20
canaries = false

[options]
max_submitted = 50

[[run]]
name = "models/BERT.+"
backends = ["pt_inductor:eager", "jax_xla"]
quick = true
deadline = ["compile=600"]
batch = [1, 8]

[[run]]
model = "my_net.py"

[[class]]
name = "big"
requires = ["+cpu +avx512 -smt", "%device=a100"]
access = ["-p", "bench"]
hosts = "n1"
environment = "/opt/venv"
repeats = 3
time_limit = "1-02:00:00"
share = "gpu"
host = "whole"
device = "host-gpu"

["class".x]
"""


@pytest.fixture
def read(tmp_path):
    """Reads a text as FLEET.toml."""

    def read(text):
        path = tmp_path / "FLEET.toml"
        path.write_text(text, encoding="utf-8", newline="")
        return read_fleet(path)

    return read


@pytest.fixture
def mistake(read, tmp_path):
    """Returns the message for a wrong text, without the folder."""

    def mistake(text):
        with pytest.raises(UsageError) as caught:
            read(text)
        message = str(caught.value)
        assert "\n" not in message
        assert len(message) < 600
        return message.removeprefix(f"{tmp_path}/")

    return mistake


def test_every_key_is_read(read, tmp_path):
    fleet = read(EVERY_KEY.replace('["class".x]\n', ""))
    [machine_class] = fleet.classes
    requires = machine_class.requires
    assert attrs.evolve(fleet, runs=(), classes=()) == Fleet(
        path=tmp_path / "FLEET.toml",
        name="zoo",
        spool=tmp_path / "spool",
        engine="slurm",
        engine_options={"max_submitted": 50},
        runs=(),
        classes=(),
        attempts=5,
        batch_minutes=20,
        canaries=False,
    )
    first, second = fleet.runs
    assert (first.name, first.quick, first.batch) == ("models/BERT.+", True, (1, 8))
    assert first.backends == ("pt_inductor:eager", "jax_xla")
    assert first.deadline == (("compile", 600.0),)
    assert second.model == "my_net.py"
    assert machine_class == MachineClass(
        name="big",
        requires=requires,
        access=("-p", "bench"),
        hosts=("n1",),
        environment="/opt/venv",
        repeats=3,
        time_limit_s=26 * 3600,
        share="gpu",
        host="whole",
        device="host-gpu",
    )
    assert [item.text for item in requires] == ["+cpu +avx512 -smt", "%device=a100"]


def test_defaults(read, tmp_path):
    fleet = read(SMALL)
    usual = Fleet(
        path=tmp_path / "FLEET.toml",
        name="fleet",
        spool=tmp_path / "fleet-spool",
        runs=fleet.runs,
        classes=(MachineClass(name="a"),),
    )
    assert fleet == usual
    assert fleet.folder == tmp_path / "fleet-spool" / "fleet"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + SMALL,
        SMALL.replace("\n", "\r\n"),
        '[run]\nname = "models/X"\n[class]\nname = "a"\n',
        'run = [{name = "models/X"}]\nclass = [{name = "a"}]\n',
        '["run"]\nname = "models/X"\n[ class ]\n"name" = "a"\n',
    ],
    ids=["mark", "windows", "single-tables", "inline", "quoted"],
)
def test_other_forms_of_the_same_file(read, text):
    fleet, other = (
        # The default name of the results file contains the time.
        attrs.evolve(fleet, path=None, runs=[attrs.evolve(r, output=None) for r in fleet.runs])
        for fleet in (read(text), read(SMALL))
    )
    assert fleet == other


def test_a_dotted_key_is_a_table(read):
    assert read("options.max_submitted = 3\n" + SMALL).engine_options == {"max_submitted": 3}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60),
        ('"90s"', 90),
        ('"45m"', 2700),
        ('"2h"', 7200),
        ('"30d"', 30 * 86400),
        ('"00:10:00"', 600),
        ('"1-12:00:30"', 36 * 3600 + 30),
    ],
)
def test_durations(read, text, seconds):
    assert read(f"{SMALL}time_limit = {text}\n").classes[0].time_limit_s == seconds


@pytest.mark.parametrize(
    "text", ['"45"', '""', '"m"', '"-5m"', '"5 m"', '"1.5h"', "1.5", "true", "01:00:00", '"1:2:3"']
)
def test_invalid_durations(mistake, text):
    message = mistake(f"{SMALL}time_limit = {text}\n")
    assert message.startswith('FLEET.toml:5: time_limit must be a duration such as "45m" or "2h"')


@pytest.mark.parametrize("text", ["59", '"30s"', '"31d"', '"99999999h"'])
def test_durations_out_of_range(mistake, text):
    message = mistake(f"{SMALL}time_limit = {text}\n")
    shown = text.replace('"', "'")
    assert message == f"FLEET.toml:5: time_limit must be from 1 minute to 30 days, got {shown}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attempt = 3\n" + SMALL, "1: unknown key 'attempt'; did you mean attempts?"),
        ("\n\nnmae = 'x'\n" + SMALL, "3: unknown key 'nmae'; did you mean name?"),
        ("option.a = 3\n" + SMALL, "1: unknown key 'option'; did you mean options?"),
        (SMALL + "[optoins]\na = 1\n", "5: unknown key 'optoins'; did you mean options?"),
        ("[[clas]]\n" + SMALL, "1: unknown key 'clas'; did you mean class?"),
        (SMALL + 'require = "+cpu"\n', "5: unknown key 'require'; did you mean requires?"),
        (SMALL + "time_limit_s = 60\n", "5: unknown key 'time_limit_s'; did you mean time_limit?"),
        (SMALL + "wall.x = 60\n", "5: unknown key 'wall'; expected name, requires, access"),
        (
            '[[run]]\nname = "x"\nwarmup-iterations = 1\n' + CLASS,
            "3: unknown key 'warmup-iterations'; did you mean warmup_iterations?",
        ),
        ('[[run]]\nname = "x"\noutput = "r"\n' + CLASS, "3: unknown key 'output'"),
        # The second of two classes, not the first line with this key.
        (SMALL + "repeats = 2\n" + CLASS + "repeets = 2\n", "8: unknown key 'repeets'"),
        ('class = [{name = "a", require = "+cpu"}]\n' + RUN, "1: unknown key 'require'"),
        (EVERY_KEY, "22: unknown key 'x'"),
    ],
)
def test_misspelt_keys(mistake, text, message):
    assert mistake(text).startswith(f"FLEET.toml:{message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 3\n" + SMALL, "1: name must be a string of printable characters, got 3"),
        ('spool = ""\n' + SMALL, "1: spool must be a string"),
        ('spool = "a\\u0000b"\n' + SMALL, "1: spool must be a string of printable characters"),
        ('spool = "~no-such-user/x"\n' + SMALL, "1: spool: "),
        ("engine = ['slurm']\n" + SMALL, "1: engine must be a string"),
        ("attempts = 0\n" + SMALL, "1: attempts must be a whole number from 1 to 100, got 0"),
        ("attempts = true\n" + SMALL, "1: attempts must be a whole number"),
        (f"attempts = 0x{'9' * 5000}\n" + SMALL, "1: attempts must be a whole number"),
        ("batch_minutes = 1.5\n" + SMALL, "1: batch_minutes must be a whole number"),
        ('canaries = "no"\n' + SMALL, "1: canaries must be true or false, got 'no'"),
        ("options = [1]\n" + SMALL, "1: [options] must be a table"),
        (SMALL + "requires = 3\n", "5: requires must be a list of strings, got 3"),
        (SMALL + 'requires = ["+cpu", 3]\n', "5: requires must be a list of strings"),
        (SMALL + 'hosts = [\n"a",\n""]\n', "5: hosts contains an empty string"),
        (SMALL + 'access = ["a\\nb"]\n', "5: access must be a list of strings"),
        (SMALL + "repeats = 1001\n", "5: repeats must be a whole number from 1 to 1000"),
        (SMALL + 'share = "nodes"\n', "5: unknown share 'nodes'; did you mean node?"),
        (SMALL + f'share = "{"x" * 9999}"\n', "5: unknown share 'xxx"),
        (SMALL + 'host = "virtual"\n', "5: unknown host 'virtual'; choices are whole, shared"),
        (SMALL + "device = false\n", "5: device must be a string"),
        (SMALL + f'environment = """{"x" * 9}\ny"""\n', "5: environment must be a string"),
        (RUN + "[[class]]\n", "3: name is missing"),
        (RUN + '[[class]]\nname = "a/b"\n', "4: name 'a/b' must have at most 40 letters"),
        (RUN + f'[[class]]\nname = "{"x" * 41}"\n', "4: name 'xxx"),
        ('name = "-x"\n' + SMALL, "1: name '-x' must have at most 40 letters, digits and . _ -"),
        (SMALL + '[[class]]\nname = "b"\n' + CLASS, "8: two classes have the name 'a'"),
        ('class = "a"\n' + RUN, "1: expected at least one [[class]] table"),
        ('class = ["a"]\n' + RUN, "1: [[class]] must be a table"),
        (RUN, "1: expected at least one [[class]] table"),
        (CLASS, "1: expected at least one [[run]] table"),
        ("", "1: expected at least one"),
    ],
)
def test_wrong_values(mistake, text, message):
    assert mistake(text).startswith(f"FLEET.toml:{message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('iterations = "two"', "iterations: invalid number value: 'two'"),
        ("iterations = 0", "iterations: expected at least 1, got 0"),
        ("processes = [3]", "processes must be a single value, got [3]"),
        ("model = ['net.py']", "model must be a single value, got ['net.py']"),
        ("model = 3", "model must be a string, got 3"),
        ("batch = {a = 1}", "batch must be a single value, got {'a': 1}"),
        ("budget = 2026-01-01", "budget must be a single value, got datetime.date"),
        ("budget = nan", "budget: expected a positive number of seconds"),
        ("quick = 1", "quick must be true or false, got 1"),
        ('test = "evla"', "unknown test 'evla'; did you mean eval?"),
        ('framework = "torhc"', "framework: unknown framework torhc"),
        ('deadline = ["compil=3"]', "deadline: unknown phase 'compil'"),
    ],
)
def test_wrong_options_of_runs(mistake, line, message):
    found = mistake(f'[[run]]\nname = "x"\n{line}\n{CLASS}')
    assert found.startswith(f"FLEET.toml:3: {message}")


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("+cpu avx", "invalid 'avx'; expected +FEATURE, -FEATURE or %NAME=VALUE"),
        ("+cpu -cpu", "cpu is both required and excluded"),
        ("%device=", "invalid '%device='; expected +FEATURE"),
        ("%device=a %device=b", "device has conflicting values, a and b"),
    ],
)
def test_wrong_requirements(mistake, requirement, message):
    found = mistake(f'{SMALL}requires = ["+cpu", "{requirement}"]\n')
    assert found.startswith(f"FLEET.toml:5: requires: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name = = 3\n", "is not TOML: Invalid value (at line 1, column 8)"),
        (b"name = 'a'\nname = 'b'\n", "is not TOML: Cannot overwrite a value (at line 2"),
        (b"[[run]]\n[run]\n", "is not TOML: Cannot declare ('run',) twice (at line 2"),
        (b"\x80\x00\xff", "is not TOML: 'utf-8' codec can't decode byte 0x80"),
        (b"\0" * 100, "is not TOML: Invalid statement (at line 1, column 1)"),
        (b"x = " + b"[" * 5000, "is not TOML: "),
        (b"x = " + b"9" * 5000, "is not TOML: "),
        (b"#" * (2**20 + 1), "is larger than 1048576 bytes"),
    ],
)
def test_files_that_are_not_toml(tmp_path, content, message):
    path = tmp_path / "FLEET.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_fleet(path)
    assert str(caught.value).startswith(f"{path} {message}")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_fleet(tmp_path)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_fleet(tmp_path / "FLEET.toml")
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        read_fleet(tmp_path / ("x" * 300))


def test_the_guide_has_every_key_with_its_default(read, mistake):
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", GUIDE, re.MULTILINE)
    keys = mistake(f"{SMALL}zzz = 1").partition("expected ")[2].split(", ")
    keys += mistake(f"zzz = 1\n{SMALL}").partition("expected ")[2].split(", ")
    assert {*keys} - {"run", "class", "options"} <= {name for name, _ in rows}
    fleet = read(SMALL)
    defaults = attrs.asdict(fleet) | attrs.asdict(fleet.classes[0])
    for name, text in rows:
        if re.fullmatch(r"`\d+`", text):
            assert str(defaults[name]) == text.strip("`")
        elif (quoted := re.fullmatch(r'`"([a-z]+)"`', text)) and name in defaults:
            assert defaults[name] == quoted[1]


@pytest.mark.parametrize("text", blocks(GUIDE, "toml"))
def test_descriptions_in_the_guide_are_valid(read, text):
    assert read(text).classes
