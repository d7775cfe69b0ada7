"""The backend interface, and code that several backends share."""
