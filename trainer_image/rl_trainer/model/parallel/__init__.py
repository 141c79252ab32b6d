"""Models divided among ranks, and the samples that each rank computes."""
