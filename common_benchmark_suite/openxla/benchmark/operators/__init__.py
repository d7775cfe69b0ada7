"""Operators: single operations of networks, written once for each framework.

An operator is a file that holds one `OPERATOR`: what goes in and what comes out for a shape
(m, k, n), and a function in each of PyTorch, JAX and TensorFlow, or in some of them. Its inputs are
arguments of the program, weights among them, so no compiler can fold them. A layer is an
operator with weights, held as a model holds them. A case of either is a case like any other: same
artifacts, same truth in float64, same races.
"""

from openxla.benchmark.operators.definition import (
    FRAMEWORKS,
    Argument,
    Layer,
    Operator,
    Values,
    get,
    operators,
    unknown,
)

__all__ = ["FRAMEWORKS", "Argument", "Layer", "Operator", "Values", "get", "operators", "unknown"]
