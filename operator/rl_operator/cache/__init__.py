"""The watched objects in memory, and reads that use them."""
