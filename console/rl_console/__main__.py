"""``python -m rl_console``."""

from rl_console.app import main

main()
