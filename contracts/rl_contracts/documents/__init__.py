"""Documents of the shared state: frozen records, stored whole in MongoDB."""
