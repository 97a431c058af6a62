"""Judges at work: models that are asked whether responses are right."""
