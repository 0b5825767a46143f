"""Programs of JAX and torch: the model through the interpreter, compiled by the library, on one device or several."""
