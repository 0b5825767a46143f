"""Programs, each class one way to run a model, and the functions that compile them."""
