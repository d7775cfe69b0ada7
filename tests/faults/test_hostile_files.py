"""Files that break or slow down parsers: every reader prints one line within the deadline."""

import itertools
import json
import os
import struct
import time

import pytest

from comparative_benchmark.errors import UsageError
from comparative_benchmark.interop.milabench import config
from openxla.benchmark import bounded
from openxla.benchmark.user_models import UserModelError, cases
from openxla.benchmark.user_models.model_options import ModelOptions

DEADLINE_S = 2.0
CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 1,
    "intermediate_size": 8,
    "vocab_size": 10,
    "max_position_embeddings": 8,
    "type_vocab_size": 2,
}
HEADER = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


def varint(number):
    """Returns a number as protobuf writes it."""
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def field(number, content):
    """Returns a field of a protobuf message."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx(graph):
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


def _casts(count=4000):
    names = [f"c{index}".encode() for index in range(count + 1)]
    nodes = [
        field(1, field(1, a) + field(2, b) + field(4, b"Cast"))
        for a, b in itertools.pairwise(names)
    ]
    nodes += [
        field(
            1,
            field(1, b"w") + field(1, names[-1]) + field(2, f"g{i}".encode()) + field(4, b"Gather"),
        )
        for i in range(count)
    ]
    weight = field(5, field(1, 5) + field(2, 1) + field(8, b"w"))
    shape = field(2, field(1, field(1, 7) + field(2, field(1, field(1, 4)))))
    inputs = [field(11, field(1, name) + shape) for name in names[:2000]]
    return onnx(b"".join(nodes) + weight + b"".join(inputs))


def _nested(depth):
    graph = b""
    for _ in range(depth):
        graph = field(1, field(4, b"If") + field(5, field(6, graph)))
    return onnx(graph)


ONNX = {
    "casts and gathers": _casts,
    "sizes that multiply": lambda: onnx(
        field(5, b"".join(field(1, 2**62) for _ in range(300_000)) + field(2, 1) + field(8, b"w"))
    ),
    "deep subgraphs": lambda: _nested(2000),
    "a length beyond the end": lambda: b"\x3a\xff\xff\xff\xff\x0f",
    "an endless varint": lambda: b"\x08" + b"\xff" * 1000,
    "zeros": lambda: b"\0" * 4_000_000,
    "empty": lambda: b"",
    "HTML": lambda: b"<!doctype html><html></html>",
    "a Git LFS pointer": lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "a name that is not UTF-8": lambda: onnx(field(11, field(1, b"\xff\xfe"))),
    "weights far beyond the data": lambda: onnx(
        field(5, field(13, field(1, b"location") + field(2, b"net.onnx"))
              + field(13, field(1, b"length") + field(2, b"9" * 5000)))
    ),
}  # fmt: skip
CONFIGS = {
    "a billion layers": {"num_hidden_layers": 10**9},
    "a billion heads": {"num_attention_heads": 10**9, "hidden_size": 10**9},
    "an integer of 5,000 digits": {"hidden_size": "HUGE"},
    "layers as a text": {"num_hidden_layers": "1"},
    "a size with a point": {"hidden_size": 8.5},
    "negative sizes": {"hidden_size": -8, "intermediate_size": -1},
    "zero heads": {"num_attention_heads": 0},
    "null": dict.fromkeys(CONFIG),
    "lists": {"hidden_size": [1, 2], "vocab_size": [1, 2]},
    "a class that is a list": {"architectures": [["BertModel"]]},
    "a class that is a number": {"architectures": [7]},
    "a type that is a mapping": {"model_type": {"a": 1}},
    "infinity": {"hidden_size": float("inf")},
    "NaN": {"layer_norm_eps": float("nan"), "hidden_size": float("nan")},
    "true": {"hidden_size": True, "num_hidden_layers": True},
}
HEADERS = {
    "nested": b"[" * 50_000,
    "nested mappings": b'{"a":' * 50_000,
    "not JSON": b"x" * 100,
    "negative shape": HEADER.replace(b"[1]", b"[-1]"),
    "a huge shape": HEADER.replace(b"[1]", b"[1e30]"),
    "offsets backwards": HEADER.replace(b"[0,4]", b"[4,0]"),
    "offsets beyond the end": HEADER.replace(b"[0,4]", b"[0,4000000000]"),
    "an unknown type": HEADER.replace(b"F32", b"X99"),
    "a type that is a number": HEADER.replace(b'"F32"', b"32"),
    "an integer of 5,000 digits": HEADER.replace(b"[1]", b"[" + b"9" * 5000 + b"]"),
    "a list": b"[1]",
    "a text": b'"a"',
}
MODULES = {
    "nested brackets": "(" * 5000,
    "nested lists": "[" * 90 + "]" * 90,
    "a huge literal": "x = " + "9" * 10_000,
    "zeros": "\0" * 100,
    "a long line": "x = '" + "a" * 3_000_000 + "'",
    "a deep expression": "x = " + "-" * 50_000 + "1",
    "many additions": "x = " + "1+" * 20_000 + "1",
    "not UTF-8": b"x = '\xff'",
    "an unknown encoding": "# -*- coding: nonsense -*-\n",
    "tabs and spaces": "if 1:\n\tx = 1\n        y = 2\n",
}
TOKENIZERS = {
    "not JSON": "{",
    "a pattern that backtracks": json.dumps(
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
            "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
        }
    ),
    "normalizers that multiply": json.dumps(
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"}] * 12},
            "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
        }
    ),
    "nested": "[" * 100_000,
    "empty": "",
}  # fmt: skip
PROCESSORS = {
    "a million pixels squared": {"size": {"height": 10**6, "width": 10**6}, "do_resize": True},
    "a huge shortest edge": {"size": {"shortest_edge": 10**9}, "do_resize": True},
    "a huge crop": {"crop_size": 10**6, "do_center_crop": True},
    "a spread of zero": {"image_std": [0, 0, 0], "do_normalize": True},
    "sizes as texts": {"size": {"height": "a", "width": "b"}, "do_resize": True},
    "negative sizes": {"size": {"height": -1, "width": -1}, "do_resize": True},
    "a type that is a list": {"image_processor_type": ["ViTImageProcessor"]},
}
YAMLS = {
    "a matrix of a trillion": "a:\n  definition: .\n  job:\n    name: x-{k0}\n  matrix:\n"
    + "".join(f"    k{i}: [{', '.join(map(str, range(60)))}]\n" for i in range(7)),
    "files that include the next twice": None,
    "a pipe": "include: pipe\n",
    "itself": "include: b.yaml\n",
    "a folder": "include: .\n",
    "a device": "include: /dev/zero\n",
    "an integer of 5,000 digits": f"a:\n  definition: .\n  weight: {'9' * 5000}\n",
    "5,000 digits of a duration": (f"a:\n  definition: .\n  max_duration: {'9' * 5000}\n"),
    "nested": "a: " + "[" * 500,
    "a billion laughs": "a: &a [x, x]\nb: [*a, *a]\n",
    "a tag": "a: !!python/object/apply:os.system [id]\n",
    "zeros": "\0" * 100,
}


@pytest.fixture(autouse=True)
def deadline(monkeypatch):
    """Shortens the deadline, so that no test takes long."""
    monkeypatch.setattr(bounded, "DEADLINE_S", DEADLINE_S)
    monkeypatch.setattr(cases, "_SLOWEST_BYTES_PER_S", 1e12)


@pytest.fixture
def refused(tmp_path):
    """Reads a model as `cbs run` does; returns the line that refuses it, None if it is accepted."""

    def read(name, **wanted):
        started = time.monotonic()
        try:
            cases.find_cases_bounded(str(tmp_path / name), ModelOptions(folder=tmp_path, **wanted))
        except UserModelError as error:
            line = str(error)
        else:
            line = None
        # The time to start and end the process is not part of the parser's time.
        assert time.monotonic() - started < 5 * DEADLINE_S
        return line

    return read


def _is_clear(line):
    return "\n" not in line and len(line) < 1000 and "Traceback" not in line


def write_directory(folder, *, config=None, header=HEADER, **files):
    """Writes a Hugging Face directory."""
    folder.mkdir(exist_ok=True)
    text = json.dumps({**CONFIG, **(config or {})}).replace('"HUGE"', "9" * 5000)
    (folder / "config.json").write_text(text)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content)


@pytest.mark.parametrize("name", ONNX)
def test_onnx(tmp_path, refused, name):
    (tmp_path / "net.onnx").write_bytes(ONNX[name]())
    assert _is_clear(refused("net.onnx"))


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations(tmp_path, refused, name):
    write_directory(tmp_path / "net", config=CONFIGS[name])
    line = refused("net")
    # Fields that only transformers reads are checked by transformers, in a worker.
    assert line is None or _is_clear(line)
    if name.startswith(("a billion", "an integer")):
        assert line is not None


@pytest.mark.parametrize("name", HEADERS)
def test_weights(tmp_path, refused, name):
    write_directory(tmp_path / "net", header=HEADERS[name])
    assert _is_clear(refused("net"))


def test_an_index_with_many_absent_shards_is_one_short_line(tmp_path, refused):
    write_directory(tmp_path / "net")
    (tmp_path / "net" / "model.safetensors").unlink()
    names = {f"t{index}": f"model-{index}.safetensors" for index in range(2_000)}
    (tmp_path / "net" / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": names})
    )
    line = refused("net")
    assert _is_clear(line)
    assert "and 1997 more" in line


@pytest.mark.parametrize("name", MODULES)
def test_modules(tmp_path, refused, name):
    content = MODULES[name]
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "net.py").write_bytes(content)
    line = refused("net.py", inputs=("f32[2]",))
    assert line is None or _is_clear(line)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokenizers(tmp_path, refused, name):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    write_directory(tmp_path / "net", tokenizer=TOKENIZERS[name])
    (tmp_path / "text.txt").write_text("a" * 30 + "b")
    assert _is_clear(refused("net", text=tmp_path / "text.txt"))


@pytest.mark.parametrize("name", PROCESSORS)
def test_image_processors(tmp_path, refused, name):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    config = {"model_type": "vit", "architectures": ["ViTModel"], "image_size": 8, "patch_size": 4}
    write_directory(
        tmp_path / "net", config=config, preprocessor_config=json.dumps(PROCESSORS[name])
    )
    image.new("RGB", (8, 8)).save(tmp_path / "picture.png")
    assert _is_clear(refused("net", image=tmp_path / "picture.png"))


@pytest.mark.parametrize("text", ["f32[" + "9" * 5000 + "]", "i32[4]<" + "9" * 5000, "f32[" * 999])
def test_input_texts(tmp_path, refused, text):
    (tmp_path / "net.py").write_text("class Net: pass")
    assert _is_clear(refused("net.py", inputs=(text,)))


@pytest.mark.parametrize("name", ["net.py", "net.onnx", "net.pt2", "net"])
@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
def test_what_is_not_a_file(tmp_path, refused, name, kind):
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    assert _is_clear(refused(name))


@pytest.mark.parametrize("name", YAMLS)
def test_bench_files(cbs, tmp_path, name):
    if name.startswith("files"):
        for index in range(25):
            (tmp_path / f"f{index}.yaml").write_text(
                f"include: [f{index + 1}.yaml, f{index + 1}.yaml]\n"
            )
        (tmp_path / "f25.yaml").write_text("a:\n  definition: .\n")
        (tmp_path / "b.yaml").write_text("include: f0.yaml\n")
    else:
        (tmp_path / "b.yaml").write_text(YAMLS[name])
    os.mkfifo(tmp_path / "pipe")
    started = time.monotonic()
    with pytest.raises(UsageError) as refused:
        config.read(tmp_path / "b.yaml")
    assert time.monotonic() - started < 5 * DEADLINE_S
    assert _is_clear(str(refused.value))


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("report", "-o", "p.html"),
        ("report", "--markdown", "-"),
        *(
            ("export", "--format", name, "-o", "out")
            for name in ("junit", "csv", "asv", "google-benchmark", "oss-v3", "torchbench")
        ),
    ],
    ids=" ".join,
)
def test_the_ends_of_the_calendar(cbs, tmp_path, stamp, arguments):
    text = (tmp_path / "good.json").read_text()
    document = json.loads(text)
    for run in (document, *document["runs"]):
        run["trigger"]["timestamp"] = stamp
    (tmp_path / "odd.json").write_text(json.dumps(document))
    command, *options = arguments
    code, _, err = cbs(command, "odd.json", *options)
    assert code == 0 or _is_clear(err.strip())
