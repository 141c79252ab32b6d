"""Attention within the sequences of a packed row: its hook in transformers, kernels and sinks."""
