"""Graphs of movement operators over tensors that are larger than memory: safetensors files, zarr and dask arrays."""
