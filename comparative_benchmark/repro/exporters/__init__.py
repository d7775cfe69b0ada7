"""One module for each backend, with a function `export(task)`; see `exported`."""
