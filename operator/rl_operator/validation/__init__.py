"""Options that cannot be honoured: refused by field, with a remedy."""
