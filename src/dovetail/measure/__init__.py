"""Measurements: benchmarks, profiles, the times of nodes, and the report of a model."""
