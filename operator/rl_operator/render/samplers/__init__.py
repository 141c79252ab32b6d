"""Renders the pods of samplers, and those that run programs for them."""
