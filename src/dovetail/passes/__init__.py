"""Transformations of graphs: check, edit, merge, simplify, rebatch and make_stateful."""
