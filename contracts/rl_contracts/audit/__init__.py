"""Reads a run's documents and says what was trained, and whether they fit each other."""
