"""Taking one measurement: worker, session, sampling and verification. Knows no framework."""
