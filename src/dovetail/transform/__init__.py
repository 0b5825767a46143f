"""Transformations of models: each takes a model and returns a new one."""
