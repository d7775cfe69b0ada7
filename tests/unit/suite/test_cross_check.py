"""When results of two implementations count as different."""

import ml_dtypes
import numpy as np
import pytest

from openxla.benchmark.artifacts.workload_store import RouteDifference, TruthCheck
from openxla.benchmark.user_models.inputs import NODE_TOLERANCE, cross_checked, difference

NARROW = {"float32": 1e-3, "float16": 0.01, "bfloat16": 0.1}
X = np.linspace(-3.0, 5.0, 41)


def test_rounding_of_float64_is_no_difference_and_more_is():
    assert difference([X], [X * (1 + 1e-13)]) is None
    assert difference([X], [X + 1e-8]) == pytest.approx(1e-8 / 5)
    assert difference([X], [X + 1e-8], tolerance=1e-7) is None


def test_an_operator_may_sum_in_float32():
    deform_conv = X * (1 + 2.2e-7)  # by ONNX's evaluator, against ONNX Runtime
    assert difference([X], [deform_conv], tolerance=NODE_TOLERANCE) is None


@pytest.mark.parametrize("name", NARROW)
def test_a_narrower_type_has_its_own_tolerance(name):
    narrow = X.astype(name if name != "bfloat16" else ml_dtypes.bfloat16)
    assert difference([X], [narrow]) is None
    wrong = (X * (1 + NARROW[name])).astype(narrow.dtype)
    assert difference([X], [wrong]) == pytest.approx(NARROW[name], rel=0.2)


@pytest.mark.parametrize(
    "other",
    [
        X[:-1],
        X[None],
        X.astype(np.int64),
        np.where(X > 4, np.nan, X),
        np.where(X > 4, np.inf, X),
        X + 0j,
    ],
)
def test_other_shapes_kinds_and_places_of_nan_differ_without_a_size(other):
    assert difference([X], [other]) == np.inf
    check = cross_checked([X], [other], routes=("one", "other"), where="the program")
    assert check.in_doubt == (
        RouteDifference(operator="the program", node="output 0", routes=("one", "other")),
    )


def test_the_same_nan_and_infinities_are_equal():
    x = np.where(X > 4, np.inf, np.where(X < -2, np.nan, X))
    assert difference([x], [x.copy()]) is None
    assert difference([x], [-x]) == np.inf


def test_integers_and_complex_numbers():
    ids = np.arange(5)
    assert difference([ids], [ids.astype(np.int32)]) is None
    assert difference([ids], [ids + (ids == 3)]) == np.inf
    assert difference([X + 1j * X], [X + 1j * X]) is None
    assert difference([X + 1j * X], [X - 1j * X]) == pytest.approx(2.0)


def test_outputs_without_elements_and_of_zeros():
    assert difference([np.zeros((0, 3))], [np.zeros((0, 3))]) is None
    assert difference([np.zeros(3)], [np.zeros(3)]) is None
    assert difference([np.zeros(3)], [np.full(3, 1e-300)]) == np.inf


def test_another_number_of_outputs_differs():
    assert difference([X, X], [X]) == np.inf


def test_a_check_names_the_first_output_that_differs():
    routes = ("one", "other")
    assert cross_checked([X, X], [X, X], routes=routes, where="it") == TruthCheck(routes=routes)
    (found,) = cross_checked([X, X], [X, X + 1], routes=routes, where="it").in_doubt
    assert str(found) == "one and other differ by 0.2 times the scale at it (output 1)"
    alone = cross_checked([X], None, routes=routes, where="it")
    assert alone == TruthCheck(routes=("one",), unchecked=("it",))


def test_checks_of_two_inputs_are_joined():
    doubt = RouteDifference(operator="A", node="", routes=("x", "y"), error=0.5)
    first = TruthCheck(routes=("one", "two"), unchecked=("A",))
    second = TruthCheck(routes=("one", "three"), in_doubt=(doubt,))
    assert first.joined(None) == first
    assert first.joined(second) == TruthCheck(
        routes=("one", "two", "three"), in_doubt=(doubt,), unchecked=("A",)
    )
