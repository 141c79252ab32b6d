"""Other systems under the same load."""
