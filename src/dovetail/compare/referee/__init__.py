"""Referee of releases: which release runs a model wrongly, from which operator on, and the smallest model that shows it."""
