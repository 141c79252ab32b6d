"""Clients of MongoDB and S3: addresses, credentials, time-outs, error texts."""
