"""Comparison of every value of a model in several engines, and the search for a wrong operator."""
