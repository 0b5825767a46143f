"""Interfaces of other tools, implemented with dovetail."""
