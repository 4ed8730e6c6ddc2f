"""`planform dev`: the loop from saving a file to seeing what it changes."""
