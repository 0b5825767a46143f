"""Passes: each takes a graph, changes it with the verbs of ir/edit.py, and says how many changes it made."""
