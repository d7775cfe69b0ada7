"""Arguments of any structure as a flat list of arrays, and back."""

import dataclasses
import enum
import inspect
import typing

import numpy as np
import optree
import pytest

from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.python_files import call_form

ONE, TWO, THREE = np.ones(1), np.ones(2), np.ones(3)


class Trees:
    """OpTree, as Keras has it; each framework has its own."""

    def flatten(self, tree, is_leaf):
        paths, leaves, structure = optree.tree_flatten_with_path(
            tree, is_leaf, none_is_leaf=True, namespace="test"
        )
        return list(zip(paths, leaves, strict=True)), structure

    def unflatten(self, leaves, structure):
        return optree.tree_unflatten(structure, leaves)

    def register(self, dataclass):
        names = [field.name for field in dataclasses.fields(dataclass)]
        optree.register_pytree_node(
            dataclass,
            lambda value: ([getattr(value, name) for name in names], None, names),
            lambda _, children: dataclass(*children),
            namespace="test",
        )


class Colour(enum.Enum):
    RED = 1


class Pair(typing.NamedTuple):
    left: object
    right: object


def anything(*args, **keywords):
    return args, keywords


def split(example, function=anything):
    return call_form.split(example, inspect.signature(function), Trees())


def called(example, function=anything):
    """Returns how a function is called by the form of an example, on its own arrays."""
    form, arrays = split(example, function)
    return form.call(function, arrays)


def same(one, other):
    return optree.tree_all(optree.tree_map(lambda a, b: a is b, one, other))


@pytest.mark.parametrize(
    ("example", "names"),
    [
        (ONE, ["argument 0"]),
        ((ONE, TWO), ["argument 0", "argument 1"]),
        ([ONE, TWO], ["argument 0", "argument 1"]),
        ({"x": ONE, "mask": None}, ["x"]),
        ((ONE, None, 2.5, True, Colour.RED), ["argument 0"]),
        ((ONE, (TWO, [THREE])), ["argument 0", "argument 1[0]", "argument 1[1][0]"]),
        (({"a": ONE, "b": {"c": TWO}},), ["argument 0.a", "argument 0.b.c"]),
        (Pair(ONE, TWO), ["argument 0[0]", "argument 0[1]"]),
    ],
)
def test_a_call_gets_what_the_file_returns(example, names):
    form, arrays = split(example)
    assert list(form.names) == names
    assert len(arrays) == len(names)
    args, keywords = form.call(anything, arrays)
    assert same(called(example), (args, keywords))
    if isinstance(example, dict):
        assert args == ()
        assert keywords == example
    elif type(example) in (tuple, list):
        assert args == tuple(example)


def test_a_dataclass_is_looked_into_and_made_again():
    @dataclasses.dataclass
    class Batch:
        x: np.ndarray
        inner: object = None

    form, arrays = split(Batch(ONE, Batch(TWO)))
    assert form.names == ("argument 0.x", "argument 0.inner.x")
    ((made,), _) = form.call(anything, [THREE, ONE])
    assert made.x is THREE
    assert made.inner.x is ONE
    assert arrays == [ONE, TWO]


def test_a_mapping_is_one_argument_of_a_function_without_such_keywords():
    def takes_one(batch):
        return batch

    assert called({"x": ONE}, takes_one) == {"x": ONE}


def test_a_mapping_at_the_end_of_a_tuple_holds_keywords_if_only_these_fit():
    def keyword(x, *, mask):
        return x, mask

    def positional(x, options):
        return x, options

    assert called((ONE, {"mask": TWO}), keyword) == (ONE, TWO)
    assert called((ONE, {"mask": TWO}), positional) == (ONE, {"mask": TWO})


def test_plain_arrays_need_no_form():
    assert split((ONE, TWO))[0].is_plain
    assert not split((ONE, None))[0].is_plain
    assert not split({"x": ONE})[0].is_plain


def test_lists_of_numbers_are_arrays_and_numbers_alone_are_inputs():
    assert split(([[1, 2], [3, 4]], ONE))[1] == [[[1, 2], [3, 4]], ONE]
    assert split((1.5, 2))[1] == [1.5, 2]


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ({"x": ONE, "mode": "mean"}, "mode is a string"),
        ((ONE, [b"raw"]), "argument 1[0] is bytes"),
        ({"x": np.array(["a"])}, "x is an array of <U1, not of numbers"),
        ({"x": np.array([object()])}, "x is an array of object"),
        ((ONE, object()), "argument 1 is a object"),
        ((), "no array"),
        ({"x": None}, "no array"),
    ],
)
def test_what_is_no_array_is_refused_by_name(example, told):
    with pytest.raises(UserModelError, match=told.replace("[", r"\[")):
        split(example)


@pytest.mark.parametrize("kind", [list, dict, "dataclass"])
def test_a_structure_that_contains_itself_is_refused(kind):
    @dataclasses.dataclass
    class Own:
        me: object = None

    if kind is list:
        value = [ONE]
        value.append(value)
    elif kind is dict:
        value = {"x": ONE}
        value["me"] = value
    else:
        value = Own()
        value.me = value
    with pytest.raises(UserModelError, match="contains itself"):
        split((value,))


def test_named_inputs_are_passed_by_keyword():
    form = call_form.by_keyword(["b", "a"], Trees())
    _, keywords = form.call(anything, [ONE if name == "a" else TWO for name in form.names])
    assert keywords == {"a": ONE, "b": TWO}
