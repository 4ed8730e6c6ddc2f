"""Commands about any object: apply, get, describe, delete, wait, events, trace."""
