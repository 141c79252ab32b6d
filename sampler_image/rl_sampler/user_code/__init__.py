"""The user's own scorers, tools and agents, which import from ``rl_sampler.extension``."""
