"""Controllers on both engines: the embedded one, and a real cluster."""
