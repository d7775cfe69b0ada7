"""The parent process of trials: planning, preparation, sessions and races."""
