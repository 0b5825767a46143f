"""Graph rewrites before planning, one per module; `pipeline` runs them in order."""
