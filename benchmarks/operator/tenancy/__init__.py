"""A tenant that attacks, beside one that only wants to train."""
