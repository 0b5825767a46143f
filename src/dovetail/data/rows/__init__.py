"""Batch inference: a model over the rows of a dataset, in this process, in several, or on a cluster."""
