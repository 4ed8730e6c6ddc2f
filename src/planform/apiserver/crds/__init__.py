"""The kinds that are served: built in, or defined by CRDs."""
