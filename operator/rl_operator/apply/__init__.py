"""Writes to the cluster: children by server-side apply, statuses, and when to reconcile again."""
