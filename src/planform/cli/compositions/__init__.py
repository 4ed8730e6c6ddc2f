"""Commands of those who write compositions: render, test, validate, convert."""
