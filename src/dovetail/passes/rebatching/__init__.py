"""The steps of :func:`dovetail.rebatch`: propagate changed sizes, repair constants, and verify samples."""
