"""The files contain only the StableHLO of TensorFlow's programs."""

import re

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from comparative_benchmark.maintenance.artifacts import from_xla

# As XLA writes a loop: values are copied on their way in and out.
PROGRAM = b"""
func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
  %limit = stablehlo.constant dense<8.0> : tensor<f32>
  %start = "mhlo.copy"(%arg0) : (tensor<2xf32>) -> tensor<2xf32>
  %end = stablehlo.while(%x = %start) : tensor<2xf32>
  cond {
    %first = stablehlo.slice %x [0:1] : (tensor<2xf32>) -> tensor<1xf32>
    %number = stablehlo.reshape %first : (tensor<1xf32>) -> tensor<f32>
    %again = stablehlo.compare LT, %number, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %again : tensor<i1>
  } do {
    %copied = "mhlo.copy"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    %sum = stablehlo.add %copied, %x : tensor<2xf32>
    stablehlo.return %sum : tensor<2xf32>
  }
  return %end : tensor<2xf32>
}
"""


def test_copies_are_replaced_by_what_they_copy():
    with from_xla.without_locations(PROGRAM) as module:
        text = str(module)
        artifact = from_xla.portable(module)
    assert "mhlo" not in text
    assert re.search(r"stablehlo\.while\(%\w+ = %arg0\)", text)
    assert re.search(r"stablehlo\.add (%\w+), \1 ", text)
    with ir.Context() as context:
        again = stablehlo.deserialize_portable_artifact(context, artifact)
        assert "stablehlo.while" in str(again)
