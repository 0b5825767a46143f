"""Plans of compiled models on disk: a second process starts without importing, rewriting and planning the model.

``folder`` reads and writes entries safely, ``digest`` names entries by content, ``entry`` encodes a plan, and ``cached_program``
has a Program that runs an entry. For start-up time this package imports operators and formats only when they are needed.
"""
