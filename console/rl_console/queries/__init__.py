"""One layer for all who look at runs: Kubernetes objects, and data by ``rl_contracts.queries``."""
