"""Scores to tables, figures, claims and the page."""
