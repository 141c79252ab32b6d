"""The shared state's stores: the only users of the MongoDB and S3 clients."""
