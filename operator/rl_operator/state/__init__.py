"""What is observed of a job or pool, as frozen values."""
