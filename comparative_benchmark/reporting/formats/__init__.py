"""Import and export of results in the formats of other tools."""
