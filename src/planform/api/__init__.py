"""The kinds planform knows: their names and scopes, typed specs and statuses, and the schemas of built-in kinds."""
