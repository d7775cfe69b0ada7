"""`cbs bisect`: in which release, or commit, a workload became slower, bigger or wrong."""
