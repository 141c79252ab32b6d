"""Options of other frameworks as manifests: each option is mapped, or listed with the reason.

The tables here say what becomes of each option. The pages in docs/coming-from explain them, and a
test compares both.
"""
