"""The rewrites of the laws, by what they are about."""
