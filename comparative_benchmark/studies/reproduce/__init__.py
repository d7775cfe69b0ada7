"""Reproducers: one case of a results file as a directory that runs without the suite.

`creating` runs in the parent and imports no framework; `backends.exported_programs.export` runs in
a worker, and calls the function named by `BackendInfo.reproducer`. Other files in the directory are
created from `templates`, and from the templates next to that function.
"""
