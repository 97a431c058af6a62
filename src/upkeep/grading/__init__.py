"""Predictions and gold answers to scores: pure, columnar, each metric with its formula and source."""
