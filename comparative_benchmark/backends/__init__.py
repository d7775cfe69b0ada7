"""What a backend is, and what several backends share."""
