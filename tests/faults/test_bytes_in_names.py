"""Names and texts that are not UTF-8, or that control a terminal, in every output."""

import json
import os

import pytest

from comparative_benchmark.engine.worker import executor
from openxla.benchmark.text import encodable, encodable_json, one_line, printable

NAMES = {
    "latin-1": b"caf\xe9",
    "every byte": bytes(b for b in range(1, 256) if b != ord("/"))[:120],
    "half of a pair": b"\xed\xa0\x80x",
    "escape": b"a\x1b]0;title\x07b",
    "line break": b"a\nb",
    "right to left": "a\u202ebc".encode(),
    "only bytes above 127": b"\xff\xfe\xfd",
    "a cut character": "\N{SNOWMAN}".encode()[:2],
}
TEXTS = {
    "lone low": "\udce9",
    "lone high": "\ud800",
    "reversed pair": "\udc00\ud800",
    "two halves": "\ud83d\ude00",
    "escape": "\x1b[2J\x1b]0;title\x07",
    "control": "\x00\x08\x7f\x9b31m",
    "bidirectional": "\u202e\u2066",
    "backslash that looks like one": r"\udce9",
    "long": "\udce9" * 30_000,
}
RUN = (
    *("run", "--suite", "cbs_test_plugin.suite", "-name", "models/TOY_NONE/.+"),
    *("--backend", "test_numpy", "-device", "host-cpu", "-w", "1", "-iter", "3"),
    "--run-in-process",
)


def _is_clean(text):
    return text == encodable(text) and not any(c in text for c in "\x1b\x07\u202e")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["folder", "file", "both"])
def test_results_go_to_any_name(cbs, tmp_path, name, place):
    odd = os.fsdecode(NAMES[name])
    folder = tmp_path / (odd if place != "file" else "plain")
    output = folder / (f"{odd}.json" if place != "folder" else "r.json")
    before = dict(os.environ)
    code, _, err = cbs(*RUN, "-o", output)
    assert code == 0, err
    # A run in this process leaves no variable behind, such as the folder for temporary files.
    assert dict(os.environ) == before
    document = json.loads(output.read_bytes().decode("utf-8"))
    assert [record["status"] for record in document["benchmarks"]] == ["ok"]
    code, out, err = cbs("show", output)
    assert code == 0
    assert _is_clean(out + err)
    for arguments in (
        ("report", output, "-o", folder / f"{odd}.html"),
        ("report", output, "--markdown", folder / f"{odd}.md"),
        ("export", output, "--format", "junit", "-o", folder / f"{odd}.xml"),
        ("compare", output, output),
    ):
        code, out, err = cbs(*arguments)
        assert code == 0, (arguments, err)
        assert _is_clean(out + err)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "{}"),
        ("compare", "{}", "good.json"),
        ("report", "{}"),
        ("export", "{}", "--format", "junit"),
        ("run", "--suite-dir", "./{}", "--backend", "test_numpy", "-o", "r.json"),
        ("run", "-name", "{}", "--backend", "test_numpy", "-o", "r.json"),
        ("list", "-name", "{}"),
        ("run", "{}.py", "--backend", "test_numpy", "-o", "r.json"),
        ("run", "{}.onnx", "--backend", "test_numpy", "-o", "r.json"),
        ("micro", "run", "{}", "-o", "r.json"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_there_is_one_clean_line(cbs, name, arguments):
    odd = os.fsdecode(NAMES[name])
    code, out, err = cbs(*(argument.replace("{}", odd) for argument in arguments))
    assert code != 0
    assert err
    assert _is_clean(out + err)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("field", ["label", "tag", "hostname", "log_file", "version"])
def test_odd_texts_of_a_results_file_are_shown_clean(cbs, tmp_path, text, field):
    document = json.loads((tmp_path / "good.json").read_text())
    odd = TEXTS[text][:5000]
    record = document["benchmarks"][0]
    if field == "hostname":
        document["runs"][0]["execution_environment"]["host"]["hostname"] = odd
    elif field == "label":
        record["definition"]["workload"]["label"] = odd
    elif field == "tag":
        record["definition"]["tags"] = [odd]
    elif field == "version":
        record["versions"] = {"torch": odd}
    else:
        record["log_file"] = odd
    (tmp_path / "odd.json").write_text(json.dumps(document))
    for arguments in (
        ("show", "odd.json"),
        ("report", "odd.json", "-o", "p.html"),
        ("report", "odd.json", "--markdown", "p.md"),
        ("export", "odd.json", "--format", "junit", "-o", "p.xml"),
    ):
        code, out, err = cbs(*arguments)
        # JSON with half of a surrogate pair is refused with one line.
        refused = odd != encodable(odd) and "half a surrogate pair" in err
        assert code == (1 if refused else 0), err
        assert _is_clean(out + err)


@pytest.mark.parametrize("text", TEXTS)
def test_an_exception_with_an_odd_text_costs_its_own_trial(cbs, tmp_path, monkeypatch, text):
    monkeypatch.setattr(executor, "_told", lambda _: TEXTS[text])
    arguments = [word.replace("TOY_NONE", "TOY_(NONE|RAISES)") for word in RUN]
    code, out, err = cbs(*arguments, "-o", "r.json")
    assert code == 1
    assert _is_clean(out + err)
    document = json.loads((tmp_path / "r.json").read_bytes())
    assert [record["status"] for record in document["benchmarks"]] == ["ok", "failed"]
    assert cbs("show", "r.json")[0] == 0


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_made_safe(text):
    odd = TEXTS[text]
    assert json.loads(json.dumps(encodable_json({odd: [odd, {"a": odd}]})).encode())
    encodable(odd).encode()
    assert not {"\x1b", "\x00", "\u202e"} & set(printable(odd))
    assert len(one_line(odd)) <= 300
    if text == "backslash that looks like one":
        assert printable(odd) == odd
