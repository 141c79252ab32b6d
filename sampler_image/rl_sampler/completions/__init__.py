"""Language models behind an OpenAI-compatible API."""
