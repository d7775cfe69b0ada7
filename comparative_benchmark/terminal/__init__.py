"""Printing and parsing for commands: tables, options, streams."""
