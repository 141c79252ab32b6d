"""Models of the Hugging Face hub, brought into the bucket: for trainer and samplers alone."""
