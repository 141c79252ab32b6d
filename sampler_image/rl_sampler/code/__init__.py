"""The container ``code``, seen by the agent: its messages, its client, a stream to a program."""
