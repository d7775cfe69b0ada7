"""Reproducers: one case of a results file as a directory that runs without the suite.

`command` is the parent's side and imports no framework; `exporting` runs in a worker, where it
calls the function that `BackendInfo.reproducer` names. What goes into the directory besides the
program is written from `templates`, and from those beside that function.
"""
