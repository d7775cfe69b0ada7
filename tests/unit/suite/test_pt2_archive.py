"""Code in `.pt2` archives is found before PyTorch loads them."""

import json
import zipfile

import pytest

from openxla.benchmark.user_models.programs.torch_archives import (
    NotAnArchiveError,
    code_in_export,
    is_expression,
    is_operator,
)

RUN = "__import__('os').system('touch ran')"


def archive(tmp_path, *, expression="Symbol('s0')", target="torch.ops.aten.add.Tensor", more=()):
    path = tmp_path / "net.pt2"
    graph = {"nodes": [{"target": target, "inputs": [{"arg": {"as_sym_int": [expression]}}]}]}
    document = {"graph_module": {"graph": graph, "sizes": [{"expr_str": expression}]}}
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("net/models/model.json", json.dumps(document))
        for name, content in more:
            made.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "Mul(Integer(2), Symbol('s77', positive=True, integer=True))",
        "2*s77",
        "Max(1, s0 + 1)",
        "s0 <= 5",
        "FloorDiv(s0, 2)",
        "Eq(Mod(s0, 2), 0)",
        "-u0",
        "Rational(1, 2)",
        "true",
    ],
)
def test_sizes_are_expressions(tmp_path, text):
    assert is_expression(text)
    assert code_in_export(archive(tmp_path, expression=text)) is None


@pytest.mark.parametrize(
    "text",
    [
        f"{RUN} or Integer(2)",
        f"Integer({RUN})",
        "Integer(2).__class__.__mro__",
        "Symbol.__init__.__globals__",
        "eval('1')",
        "exec('1')",
        "open('x')",
        "print(1)",
        "getattr(s0, 'x')",
        "Add(\"__import__('os')\")",
        "Symbol('os; x')",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "{1: 2}",
        "s0[0]",
        "s0(1)",
        "Symbol('x', **{})",
        "f'{s0}'",
        "1 if s0 else 2",
        "s0 := 1",
        "Integer(2); import os",
        "import os",
        "(" * 1000 + ")" * 1000,
        "9+" * 10_000 + "9",
        "",
        7,
        ["Integer(2)"],
        {"a": 1},
    ],
)
def test_other_python_is_code(tmp_path, text):
    assert not is_expression(text)
    assert "an expression that is not symbolic" in code_in_export(
        archive(tmp_path, expression=text)
    )


@pytest.mark.parametrize(
    "target",
    [
        *("torch.ops.aten.add.Tensor", "torch.ops.higher_order.cond", "torch.sym_max"),
        *("torch._sym_sqrt", "_operator.mul", "_operator.getitem", "math.ceil"),
    ],
)
def test_operators_of_pytorch_are_not_code(tmp_path, target):
    assert is_operator(target)
    assert code_in_export(archive(tmp_path, target=target)) is None


@pytest.mark.parametrize(
    "target",
    [
        *("torch.os.system", "torch.load", "torch.hub.load", "torch.ops.load_library"),
        *("torch.ops.aten.from_file.default", "_operator.call", "_operator.attrgetter"),
        *("_operator.methodcaller", "math.x.y", "builtins.eval", "torch.ops.aten.add.Tensor\nx"),
        *("torch", "", 7, ["torch.ops.aten.add.Tensor"]),
    ],
)
def test_other_names_are_code(tmp_path, target):
    assert not is_operator(target)
    assert "an operator that is not PyTorch's" in code_in_export(archive(tmp_path, target=target))


@pytest.mark.parametrize("name", ["custom_obj_0", "OPAQUE_OBJ_0", "opaque_obj_a/b"])
def test_objects_are_code(tmp_path, name):
    found = archive(tmp_path, more=[(f"net/data/constants/{name}", b"x")])
    assert code_in_export(found) == f"a pickled object (net/data/constants/{name})"


def test_compiled_programs_are_code(tmp_path):
    found = archive(tmp_path, more=[("net/data/aotinductor/model/x.so", b"x")])
    assert code_in_export(found) == "compiled code (net/data/aotinductor/model/x.so)"


def test_a_program_is_read_whatever_its_suffix(tmp_path):
    """As PyTorch does with everything in `models`."""
    text = json.dumps({"target": "torch.os.system", "inputs": []})
    found = archive(tmp_path, more=[("net/models/other.JSON", text)])
    assert "an operator that is not PyTorch's" in code_in_export(found)


@pytest.mark.parametrize("name", ["net/models/model.json", "net/models/MODEL.json"])
def test_an_entry_that_hides_behind_another_is_refused(tmp_path, name):
    with pytest.warns(UserWarning, match="Duplicate name") if name.islower() else _nothing():
        found = archive(tmp_path, more=[(name, "{}")])
    with pytest.raises(NotAnArchiveError, match="two entries have the same name"):
        code_in_export(found)


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive", b"\0" * 1000])
def test_what_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "net.pt2"
    path.write_bytes(content)
    with pytest.raises(NotAnArchiveError):
        code_in_export(path)


@pytest.mark.parametrize("content", ["{", "[" * 100_000, '{"a": NaN', "\xff"])
def test_json_that_is_broken_is_refused(tmp_path, content):
    found = archive(tmp_path, more=[("net/models/other.json", content)])
    with pytest.raises(NotAnArchiveError, match="invalid JSON"):
        code_in_export(found)


def _nothing():
    import contextlib

    return contextlib.nullcontext()
