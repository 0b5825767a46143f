"""Execution: encoded steps, arenas, the steps that run in Python, and the subgraphs of If and Loop."""
