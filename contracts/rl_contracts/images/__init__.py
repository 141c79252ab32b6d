"""Images of records and tools: fetched with limits, decoded in a process that can open nothing."""
