"""Programs and images of the local cluster, built from public sources and kept by key."""
