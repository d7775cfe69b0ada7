"""Exporters: from a model to the files that others compile, each verified before it is named.

`kinds` says what there is; `generation` makes it, with a process for each export and another one
that reads the file back; modules `from_*` run in these processes and import what they need.
"""
