"""Works on a claimed task, from its prompt to stored rollouts."""
