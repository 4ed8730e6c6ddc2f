"""Commands that run, back up and move a control plane."""
