"""Stands where SGLang looks for vLLM on a platform that it has no kernels for.

SGLang 0.5.23 imports one symbol of vLLM while it builds a model on a host without an accelerator,
and then dispatches to its own torch code. This is no part of vLLM.
"""
