"""The text form of a model (.dt): one node per line, with the weights in a safetensors file of the same folder."""
