"""Compositions and their revisions: made, numbered, validated, selected, counted, and deleted when unused."""
