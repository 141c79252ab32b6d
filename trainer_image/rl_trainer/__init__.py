"""The program of trainer pods."""
