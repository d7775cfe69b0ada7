"""Experiments of users: a folder with `run(args)`, which leaves a metrics file."""
