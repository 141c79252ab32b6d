"""Status and conditions of an RLJob, computed from what is observed."""
