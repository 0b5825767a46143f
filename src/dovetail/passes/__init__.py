"""Graph to graph: check, edit, merge, simplify, rebatch."""
