"""Acceptance test of the suite on a machine with a GPU: `./scripts/gpu_check.sh`."""
