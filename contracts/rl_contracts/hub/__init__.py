"""Imports models of the Hugging Face hub into the bucket; only trainer and samplers use it."""
