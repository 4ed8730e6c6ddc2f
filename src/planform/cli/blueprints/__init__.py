"""Commands about Blueprints and ActionSets."""
