"""Command-line options, separate from the commands so that help loads fast."""
