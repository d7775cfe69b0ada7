"""Requirements in ReFrame's language, and the features of this machine."""

import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.features import (
    Node,
    Requirement,
    eligible,
    parse_requirement,
    this_node,
)

BIG = Node(
    name="big",
    features=frozenset({"cpu", "gpu", "avx512", "smt"}),
    properties={"device": "a100", "arch": "x86_64"},
)
SMALL = Node(name="small", features=frozenset({"cpu", "neon"}), properties={"arch": "aarch64"})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["big", "small"]),
        ("+cpu", ["big", "small"]),
        ("+cpu +avx512", ["big"]),
        ("-smt", ["small"]),
        ("  +cpu\t-gpu ", ["small"]),
        ("%device=a100", ["big"]),
        ("%device=h100", []),
        ("+gpu -smt", []),
        ("+neon %arch=aarch64", ["small"]),
    ],
)
def test_nodes_that_meet_a_requirement(text, names):
    found = eligible([BIG, SMALL], [parse_requirement(text)])
    assert [node.name for node in found] == names


def test_one_of_several_requirements_is_enough():
    requirements = [parse_requirement("+gpu"), parse_requirement("+neon")]
    assert eligible([BIG, SMALL], requirements) == [BIG, SMALL]
    assert eligible([BIG, SMALL], []) == [BIG, SMALL]


def test_all_parts_of_a_requirement_are_parsed():
    text = "+nvidia.com/gpu -smt %device=a100 %device=a100"
    assert parse_requirement(text) == Requirement(
        text, frozenset({"nvidia.com/gpu"}), frozenset({"smt"}), (("device", "a100"),)
    )


@pytest.mark.parametrize("word", ["cpu", "+", "--smt", "+-x", "%a", "%a=", "%=b", "*", "sys:part"])
def test_other_words_are_refused(word):
    with pytest.raises(UsageError, match=r"expected \+FEATURE, -FEATURE or %NAME=VALUE"):
        parse_requirement(f"+cpu {word}")


@pytest.mark.parametrize("text", ["+a -a", "-a +b +a", "%a=1 %a=2"])
def test_contradictions_are_refused(text):
    with pytest.raises(UsageError, match=r"both required and excluded|conflicting values"):
        parse_requirement(text)


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text):
    try:
        requirement = parse_requirement(text)
    except UsageError:
        return
    parts = [len(requirement.present), len(requirement.absent), len(requirement.properties)]
    assert sum(parts) <= len(text.split())


def machine(root, cpuinfo, *, smt=None, devices=()):
    (root / "proc").mkdir()
    (root / "proc" / "cpuinfo").write_bytes(cpuinfo)
    (root / "dev").mkdir()
    for name in devices:
        (root / "dev" / name).touch()
    if smt is not None:
        path = root / "sys/devices/system/cpu/smt/active"
        path.parent.mkdir(parents=True)
        path.write_text(smt)
    return this_node(root)


@pytest.mark.parametrize(
    ("cpuinfo", "options", "features"),
    [
        (b"flags\t: fpu avx2 avx512f amx_tile\n", {}, {"cpu", "avx2", "avx512", "amx"}),
        (b"Features\t: fp asimd sve\n", {}, {"cpu", "neon", "sve"}),
        (b"flags: avx512_vnni avx512_bf16\n", {}, {"cpu", "avx512_vnni", "avx512_bf16"}),
        (b"model name: \xff\nflags: avx2\n", {"smt": "1\n"}, {"cpu", "avx2", "smt"}),
        (b"", {"smt": "0\n"}, {"cpu"}),
        (b"", {"devices": ["nvidia0", "nvidiactl"]}, {"cpu", "gpu", "nvidia"}),
        (b"", {"devices": ["nvidiactl"]}, {"cpu"}),
        (b"", {"devices": ["kfd"]}, {"cpu", "gpu", "amd"}),
    ],
)
def test_features_of_a_machine(tmp_path, cpuinfo, options, features):
    node = machine(tmp_path, cpuinfo, **options)
    assert node.features == features
    assert node.properties == {"arch": platform.machine()}
    assert node.name == platform.node()
    assert node.up


def test_a_machine_without_proc_has_a_cpu(tmp_path):
    assert this_node(tmp_path).features == {"cpu"}
