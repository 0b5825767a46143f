"""Transformations of whole models that users call: each takes models and returns a new one."""
