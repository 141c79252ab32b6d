"""What one attempt works with: its job, heartbeat, uploads and waits."""
