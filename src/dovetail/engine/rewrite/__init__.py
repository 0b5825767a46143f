"""Graph rewrites before planning, each in a module: half precision, Q/DQ fusion, recurrent layers, NMS; `pipeline` runs them."""
