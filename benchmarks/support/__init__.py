"""Shared parts of the benchmarks: results, a bucket with objects, samplers."""
