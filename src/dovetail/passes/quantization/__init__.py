"""Quantization of weights and activations: codes, encodings, sensitivities, and the selection of nodes by a budget."""
