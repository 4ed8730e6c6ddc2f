"""Composition: what a pipeline is, how it runs, and what to do about its answer."""
