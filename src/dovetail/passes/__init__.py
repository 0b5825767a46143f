"""Passes: each takes a graph, changes it with the verbs of edit.py, and says how many changes it made."""
