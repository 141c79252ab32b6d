"""Images of records: fetched with limits, decoded in a process that can open nothing."""
