"""Durable state: base model, checkpoints, exports, reports, and what is deleted."""
