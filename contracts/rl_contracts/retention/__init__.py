"""Deletes documents of a run beyond its bounds, but nothing that the run may still need."""
