"""Deletes what is left of a run beyond its bounds, and nothing that it may still need."""
