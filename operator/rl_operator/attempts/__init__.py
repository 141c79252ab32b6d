"""Trainer attempts: when one starts, how it ends, whether the end counts."""
