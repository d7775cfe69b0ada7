"""ONNX files, and their float64 evaluation."""
