"""Outputs of ONNX files whose models have complex ones."""

import numpy as np

from comparative_benchmark.backends.frameworks.torch_export import with_complex_outputs


def test_pairs_become_complex_numbers_where_the_model_has_these():
    pairs = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    wide = pairs.astype(np.float64)[:, ::-1]
    kept, narrow, double = with_complex_outputs([pairs, pairs, wide], {"complex_outputs": "1 2"})
    assert kept is pairs
    assert narrow.dtype == np.complex64
    np.testing.assert_array_equal(narrow, pairs[..., 0] + 1j * pairs[..., 1])
    assert double.dtype == np.complex128
    np.testing.assert_array_equal(double, wide[..., 0] + 1j * wide[..., 1])


def test_a_file_without_complex_outputs_is_left_alone():
    pairs = np.zeros((3, 2), np.float32)
    assert with_complex_outputs([pairs], {}) == [pairs]
