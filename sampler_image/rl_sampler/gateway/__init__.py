"""An API of the policy for programs that act out episodes, whose tokens become data."""
