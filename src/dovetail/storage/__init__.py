"""Files: opened, locked, renamed, mapped, digested; weights files, safetensors, and the pairs of model and weights."""
