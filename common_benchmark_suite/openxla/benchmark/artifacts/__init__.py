"""Files derived from models: inputs, truth and reference outputs of each workload."""
