"""The names of properties of the device CPU."""

from dovetail.compat.openvino.enumerations import Property, TbbPartitioner

__all__ = [
    "TbbPartitioner",
    "denormals_optimization",
    "sparse_weights_decompression_rate",
    "tbb_partitioner",
]

denormals_optimization = Property("CPU_DENORMALS_OPTIMIZATION")
sparse_weights_decompression_rate = Property("CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE")
tbb_partitioner = Property("TBB_PARTITIONER")
