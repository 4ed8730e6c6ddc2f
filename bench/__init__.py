"""Benchmarks. Each prints ratios against a peer or a limit measured in the same run; machines are noisy."""
