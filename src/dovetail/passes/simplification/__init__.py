"""The passes of :func:`dovetail.simplify`, one module each."""
