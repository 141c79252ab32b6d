"""Parts of ``fleet``: agents and a trainer without models, and costs of the run itself."""
