"""One claimed task from prompt to stored rollouts."""
