"""A stub for SGLang, which imports vLLM on platforms for which it has no kernels.

SGLang 0.5.23 imports a symbol of vLLM while it builds a model on a host without an accelerator, and
then dispatches to its own torch code. This package is not a part of vLLM.
"""
