"""The user's own scorers, tools and agents; ``rl_sampler.extension`` is what they import."""
