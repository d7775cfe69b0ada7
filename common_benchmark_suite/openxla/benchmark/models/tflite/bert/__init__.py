"""BERT in TFLite."""
