"""Usages: which object may not be deleted because something uses it."""
