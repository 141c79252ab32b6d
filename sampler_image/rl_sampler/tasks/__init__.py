"""Claims of tasks, kept by leases."""
