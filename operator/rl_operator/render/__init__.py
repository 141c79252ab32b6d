"""Renders the objects that ought to be there: pure functions from specs to manifests."""
