"""GPT-2 in PyTorch."""
