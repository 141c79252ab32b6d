"""Benchmarks: ``python -m benchmarks.<name> [--quick]``; the last line of output is JSON."""
