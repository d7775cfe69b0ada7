"""Statistics, verification, and facts about the machine: pure functions and readings."""
