"""The operator process: leadership, work queue, events, shutdown."""
