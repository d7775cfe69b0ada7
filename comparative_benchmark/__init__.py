"""How the suite is measured: backends, harness, results and the `cbs` command."""
