"""Program classes, one for each way to run a model, and the functions that compile models to programs."""
