"""``trajectories``, ``batch`` and ``policies``: what they read of a run, and how they show it."""
