"""Follows a job to its end for a person: shows it, and explains why it failed."""
