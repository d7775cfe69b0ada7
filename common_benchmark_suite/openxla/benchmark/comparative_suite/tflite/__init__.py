"""Cases in TFLite."""
