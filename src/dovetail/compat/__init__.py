"""Interfaces of other tools over dovetail."""
