"""Terms: values as expressions over the inputs of a model, and the laws by which they are rewritten."""
