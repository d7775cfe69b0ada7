"""`cbs completion`: commands, options and names, completed by a real bash and a real zsh."""

import os
import pty
import shlex
import shutil
import subprocess
import sys
import time

import pytest

from comparative_benchmark.cli import command as cli

CBS = shlex.join([sys.executable, "-P", "-m", "comparative_benchmark"])


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "cbs.bash"
    with path.open("w") as file:
        command = [*shlex.split(CBS), "completion", "bash"]
        subprocess.run(command, stdout=file, check=True, timeout=300)
    return path


LINES = {
    "cbs ru": ["run"],
    "cbs hist": ["history"],
    "cbs history reg": ["regressions"],
    "cbs artifacts fe": ["fetch"],
    "cbs run --compile-o": ["--compile-only"],
    "cbs history query --for": ["--format"],
    "cbs history query --format p": ["parquet"],
    "cbs history query --format=p": ["parquet"],
    "cbs run -t t": ["train"],
    "cbs run --backend pt_inductor:ea": ["eager"],
    "cbs run --backend jax_xla,pt_inductor:ea": ["eager"],
    "cbs run --backend jax_xla,al": ["jax_xla,all"],
    "cbs run --backend=onnxruntime:bas": ["basic", "basic+widened"],
    "cbs run -device host-c": ["host-cpu"],
    "cbs run -name models/BERT_TINY_FP32_JAX_32XI32_BATCH1/": [
        "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
    ],
    "cbs list --framework jax --tag transformer-enc": ["transformer-encoder"],
    "cbs show resul": ["results.json"],
    "cbs report results.json --markdown resul": ["results.json"],
    "cbs nonsense --x": [],
}


@pytest.mark.slow
def test_words_are_completed(script, tmp_path):
    (tmp_path / "results.json").touch()
    program = [f'cbs() {{ {CBS} "$@"; }}', f"source {script}"]
    for line in LINES:
        program += [
            f"COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)} COMPREPLY=()",
            '_cbs; echo "= ${COMPREPLY[*]}"',
        ]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(program)],
        cwd=tmp_path,
        env={**os.environ, "COMP_WORDBREAKS": " \t\n\"'><=;|&(:"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stderr == ""
    found = [line[2:].split() for line in done.stdout.splitlines()]
    assert dict(zip(LINES, found, strict=True)) == LINES


def test_every_command_and_option_is_in_the_script(script):
    text = script.read_text()
    for command in cli.COMMANDS:
        assert f"  [{command.name}]=" in text
    assert "--trial-budget" in text


def test_a_name_cannot_run_in_the_shell(script, tmp_path):
    """Names of other packages' cases are words, whatever is in them."""
    program = f"""
    cbs() {{ printf '%s\\n' 'models/$(touch {tmp_path}/ran)' 'models/`touch {tmp_path}/ran`'; }}
    source {script}
    COMP_LINE='cbs run -name mod' COMP_POINT=17 COMP_WORDBREAKS=' :='
    _cbs; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", program], capture_output=True, text=True, check=False
    )
    assert len(done.stdout.splitlines()) == 2
    assert not (tmp_path / "ran").exists()


def test_no_framework_is_imported_for_words(run_python):
    watched = ("torch", "jax", "tensorflow", "iree", "onnxruntime", "openvino")
    program = (
        "import sys; from comparative_benchmark.cli import main; "
        "main(['completion', 'words', 'cases']); main(['completion', 'words', 'backends']); "
        f"print([m for m in {watched} if m in sys.modules], file=sys.stderr)"
    )
    done = run_python(program)
    assert done.stderr.strip() == "[]"
    assert len(done.stdout.splitlines()) > 500


@pytest.fixture
def zsh(tmp_path):
    """A zsh in a terminal; `typed(line)` returns the completed line after a tab."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    script = tmp_path / "cbs.zsh"
    command = [*shlex.split(CBS), "completion", "zsh"]
    script.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "300", "PS1": "", "HOME": str(tmp_path)},
        start_new_session=True,
    )
    os.close(theirs)
    os.set_blocking(ours, False)

    def until(end):
        """Returns the output up to its end marker, which comes within a minute."""
        found, deadline = "", time.monotonic() + 60
        while not end(found):
            assert time.monotonic() < deadline, repr(found)
            try:
                found += os.read(ours, 65536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
        return found

    def typed(line):
        # The test types the mark, which no escape sequence contains; when its echo arrives, the
        # line is complete.
        os.write(ours, f"\x15{line}\t@".encode())
        found = until(lambda text: "@" in text)
        # On a busy machine the switch of bracketed paste comes late, within the line.
        shown = found.replace("\x1b[?2004h", "").replace("\x1b[?2004l", "")
        return shown.rpartition("@")[0].split("\r")[-1].rstrip("\x07\x08 ")

    os.write(ours, f'cbs() {{ {CBS} "$@"; }}; source {script}; echo re""ady\n'.encode())
    until(lambda text: "ready" in text)
    yield typed
    process.kill()
    process.wait()
    os.close(ours)


@pytest.mark.slow
def test_zsh_completes_the_same_words(zsh, tmp_path):
    (tmp_path / "results.json").touch()
    for line, words in LINES.items():
        if len(words) != 1:
            continue
        [word] = words
        # Bash completes what follows a colon or an equals sign; zsh all of the word.
        before, kept = line.rpartition(" ")[0], line.rpartition(" ")[2]
        breaks = max(kept.rfind(":"), kept.rfind("=")) + 1
        assert zsh(line) == f"{before} {kept[:breaks]}{word}", line
