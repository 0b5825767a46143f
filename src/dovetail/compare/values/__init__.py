"""Every value of a model in several engines, and the search for the operator that is wrong."""
