"""Results in the formats of other tools: written for their readers, and read from them."""
