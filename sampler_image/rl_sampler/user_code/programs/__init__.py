"""Runs programs of episodes: in pods of their own, and in the container ``code``.

The folder is copied into users' images, so it imports the standard library alone,
``rl_contracts.env`` and ``rl_sampler.code.wire``, and needs no more than Python 3.11.
"""
