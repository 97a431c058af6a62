"""Auditing a dataset by people: a sample of its probes on a page, and what they said of it."""
