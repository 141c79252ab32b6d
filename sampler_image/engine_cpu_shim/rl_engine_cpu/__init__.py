"""SGLang plugin of the CPU engine image: attention over whole batches, and a shorter start."""
