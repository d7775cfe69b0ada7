"""One command that proves a GPU: `./scripts/gpu_check.sh`."""
