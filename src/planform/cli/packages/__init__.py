"""Commands about packages."""
