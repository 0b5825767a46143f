"""Programs of JAX and torch: the library traces or runs the interpreter's operators, on one device or several devices."""
