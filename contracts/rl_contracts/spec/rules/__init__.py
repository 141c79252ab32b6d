"""Rules between sections of a resource, in CEL, for the API server."""
