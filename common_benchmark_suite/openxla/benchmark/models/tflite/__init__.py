"""TFLite files as models; see `docs/design/0010-tflite.md`."""
