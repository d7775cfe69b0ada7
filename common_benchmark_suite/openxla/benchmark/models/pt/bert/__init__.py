"""BERT in PyTorch."""
