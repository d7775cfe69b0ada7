"""Collections of models that other projects define."""
