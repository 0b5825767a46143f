"""Transformations of graphs: check, edit, merge, simplify and rebatch."""
