"""Strings and text."""
