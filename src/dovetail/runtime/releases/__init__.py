"""Releases of other runtimes: each in an environment and a process of its own."""
