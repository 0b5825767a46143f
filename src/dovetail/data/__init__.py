"""Data that models process: rows of a dataset, and tensors in files."""
