"""Policies on their way into the bucket."""
