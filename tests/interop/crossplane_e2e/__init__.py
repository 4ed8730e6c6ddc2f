"""Crossplane's own end-to-end tests, as its authors publish them, against a control plane of ours.

suite.yaml    every test: the flags its environment sets, or why it does not apply
changes.yaml  the only things that the copy of their tree has otherwise: digests of images, and a key
packages.py   the packages that the tests install, made here
loopback.py   a network of its own, where a registry answers to the host names of the tests
running.py    one test: a fresh control plane, their binary, its output
"""
