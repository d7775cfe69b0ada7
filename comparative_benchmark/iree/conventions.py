"""Names that a compiled program and whoever runs it have to agree on."""

PARAMETER_SCOPE = "model"
"""Scope under which a program looks its weights up; the runtime provides the archive under it."""

ENTRY = "main"
