"""Artifacts: files of a model for other compilers, and the local cache of published ones.

`kinds` lists the types of files; `generation` creates them, with one process for each export and
another that reads the file back. The modules `from_*` run in these processes and import the
frameworks that they need.
"""
