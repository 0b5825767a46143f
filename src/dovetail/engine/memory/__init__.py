"""Memory assignment: aliases between tensors, the physical layout of each tensor, and the offsets of buffers in the arena."""
