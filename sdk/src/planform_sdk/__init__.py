"""Write composition functions in Python: for planform and for Crossplane."""
