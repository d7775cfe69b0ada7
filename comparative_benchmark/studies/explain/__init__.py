"""Why is this one slower? From profiles of both: `cbs explain`.

`command` is the command, `choosing` says which two results are meant, `profiling` takes a profile
where none is kept, `table` prints. What is compared is in `results.explanations`.
"""
