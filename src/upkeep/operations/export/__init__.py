"""Scores and predictions for other programs: CSV, Parquet, a dataset folder for the Hugging Face hub, an RO-Crate."""
