"""Random networks over all native kernels, seeded by plain integers, and their comparison between the engines."""
