"""Fuzzing for a given time from a given seed: `python -m tests.fuzz`. Each module here has a `run(seconds, seed)`."""
