"""How much of a device training uses."""
