"""The rewrites of the laws, one module for each kind of rewrite."""
