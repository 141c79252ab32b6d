"""Models of a job outside of its training: downloaded, promoted, served.

The pods are made in the job's namespace with the rights of the user. They mount the job's Secret of
stores, which the user need not be able to read.
"""
