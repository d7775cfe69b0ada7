"""The parent's side of a trial: plan, preparation, sessions, races."""
