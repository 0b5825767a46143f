"""What is called: programs, each class one way to run a model, and the functions that make them."""
