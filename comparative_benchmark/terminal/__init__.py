"""What commands print and parse: tables, options, streams."""
