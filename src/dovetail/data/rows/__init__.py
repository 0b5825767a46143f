"""Batch inference: running a model over the rows of a dataset, in this process, in several processes, or on a cluster."""
