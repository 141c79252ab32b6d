"""SGLang plugin of the CPU engine image: ``torch_native`` attention over whole batches."""
