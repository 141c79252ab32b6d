"""The data of a job: fetched, checked and parsed once, then read at any place."""
