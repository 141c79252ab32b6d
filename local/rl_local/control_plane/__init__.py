"""The processes of the Kubernetes control plane and of the node, and their configuration."""
