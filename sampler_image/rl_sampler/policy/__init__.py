"""Policies: staged while serving, verified, then committed to the engine."""
