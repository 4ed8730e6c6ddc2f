"""SQLite as the durable truth, memory as the view: current objects, change log, watch, group commit."""
