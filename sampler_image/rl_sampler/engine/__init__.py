"""The inference engine on localhost."""
