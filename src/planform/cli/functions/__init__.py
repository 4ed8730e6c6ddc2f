"""Commands about functions."""
