"""Parses dataset records; errors name file, place and field."""
