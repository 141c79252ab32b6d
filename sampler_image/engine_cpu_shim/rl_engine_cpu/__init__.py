"""Plugin of SGLang for the CPU engine image: ``torch_native`` attention, whole batches at once."""
