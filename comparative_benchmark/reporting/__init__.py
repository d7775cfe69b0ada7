"""Reports, the history of results, and the formats of other tools."""
