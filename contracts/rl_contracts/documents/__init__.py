"""Documents of the shared state: frozen records that go to and come from MongoDB whole."""
