"""Files are opened, locked, renamed, memory-mapped and digested here; so are weights files, safetensors and file pairs."""
