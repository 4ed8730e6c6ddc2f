"""Composition: what a pipeline is, how it runs, and what to do about its answer.

steps         a Composition's pipeline, parsed and checked once
pipeline      runs the steps; the one implementation that reconciler, render, diff and preview share
plan          what to do about a pipeline's answer, as a value
xr            what an XR looks like
"""
