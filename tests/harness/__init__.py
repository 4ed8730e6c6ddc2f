"""Real things that tests run against, started and stopped by them."""
