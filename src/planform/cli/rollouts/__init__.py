"""Commands that decide when changes reach a fleet."""
