"""Memory of the objects of a program, written by ``python bench/cost.py --fit objects``."""

OBJECTS = (1121418.0, 5803.0, 0.0)  # 14 models
"""The bytes of a program beyond those of one with one operator: of each program, of a node, and of a planned step."""
