"""The processes of one trainer: rendezvous, commands between ranks, division of work."""
