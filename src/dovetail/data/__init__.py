"""Data that models run over: rows of a dataset, and tensors in files."""
