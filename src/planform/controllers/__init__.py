"""Thin loops, one module per controller: observe, plan, carry out."""
