"""Differences between two models: matching of nodes by content, changes of operators, weights, types and interfaces."""
