"""Terms: values as expressions over the inputs of a model, each expression once, normalized by the laws."""
