"""Reproducers: one case of a results file as a directory that runs without the suite.

`command` is the parent's side and imports no framework; `exporting` and `exporters` run in a
worker. What goes into the directory besides their files is written from `templates`.
"""

# Backends that programs can be exported from; each has a module of its name in `exporters`.
BACKENDS = (
    *("iree", "jax_xla", "onnxruntime", "openvino"),
    *("pt_inductor", "tf_xla", "tflite", "xla_hlo"),
)
