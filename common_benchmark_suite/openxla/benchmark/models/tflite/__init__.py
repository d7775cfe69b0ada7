"""TFLite files as models, one folder for each architecture; see `docs/design/0010-tflite.md`."""
