"""`cbs bisect`: finds the release or commit that made a workload slower, bigger or wrong."""
