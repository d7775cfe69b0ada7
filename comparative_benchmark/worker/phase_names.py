"""The phases of a trial, by name, in the order in which a trial meets them."""

# What a backend goes through.
PHASES = ("import", "load", "h2d", "trace", "lower", "compile", "first_run", "execute", "d2h")

# What a session knows besides: its start, the making of artifacts, what generation takes to be
# verified and to be measured in parts, the parts of a training step, the share of compiled code,
# and the time in a command that no phase has claimed yet.
SESSION_PHASES = (
    *("start", "prepare", "preprocess", "reference", "second_reference"),
    *("measure", "outputs", "run_on", "fresh_runs", "profile"),
    *("verification_compile", "generation_compile", "generation", "step_parts", "update_check"),
    "compiled_shares",
)
