"""Client and state of the inference engine (SGLang) on localhost."""
