"""Intermediate representation: graphs, types, operators and how they are built, edited and printed."""
