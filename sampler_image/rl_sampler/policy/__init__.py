"""Policies: staged and verified while the engine serves, then loaded into it."""
