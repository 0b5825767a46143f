"""The native engine: a plan (which tensor lies where, which steps run in which order) and the program that the core runs."""
