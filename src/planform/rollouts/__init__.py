"""Rollouts: a change that moves over a fleet in waves, what it asks before it goes on, and when it may."""
