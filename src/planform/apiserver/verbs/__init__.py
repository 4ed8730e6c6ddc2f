"""Get, list, watch, create, update, patch, apply and delete on the store."""
