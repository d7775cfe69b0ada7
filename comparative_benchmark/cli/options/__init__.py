"""Options of commands; apart from the commands, so that help loads fast."""
