"""`planform doctor` and its findings."""
