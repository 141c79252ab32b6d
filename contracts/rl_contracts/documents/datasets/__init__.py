"""Dataset records: parsed once, with errors that name file, place and field."""
