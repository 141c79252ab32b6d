"""Pages about runs: server-rendered, with small scripts, from one process and no other host."""
