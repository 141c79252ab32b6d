"""Admission of jobs by Kueue."""
