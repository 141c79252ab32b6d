"""The namespace's document store and bucket: connections, readings, input checks."""
