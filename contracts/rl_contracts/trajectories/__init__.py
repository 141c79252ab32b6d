"""Sampled episodes in formats that other tools read."""
