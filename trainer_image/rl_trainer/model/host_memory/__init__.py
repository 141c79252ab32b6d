"""Parameters and moments that lie in host memory while the GPU does without them."""
