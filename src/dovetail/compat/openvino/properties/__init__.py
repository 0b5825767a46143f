"""The names of the properties of a Core and a CompiledModel."""

from dovetail.compat.openvino.enumerations import CacheMode, Property, WorkloadType
from dovetail.compat.openvino.properties import device, hint, intel_auto, intel_cpu, log, streams

__all__ = [
    "CacheMode",
    "WorkloadType",
    "auto_batch_timeout",
    "available_devices",
    "cache_dir",
    "cache_encryption_callbacks",
    "cache_mode",
    "compatibility_check",
    "compilation_num_threads",
    "device",
    "enable_mmap",
    "enable_profiling",
    "enable_weightless",
    "execution_devices",
    "force_tbb_terminate",
    "hint",
    "inference_num_threads",
    "intel_auto",
    "intel_cpu",
    "key_cache_group_size",
    "key_cache_precision",
    "loaded_from_cache",
    "log",
    "max_batch_size",
    "model_name",
    "num_streams",
    "optimal_batch_size",
    "optimal_number_of_infer_requests",
    "range_for_async_infer_requests",
    "range_for_streams",
    "runtime_requirements",
    "streams",
    "supported_properties",
    "value_cache_group_size",
    "value_cache_precision",
    "weights_path",
    "workload_type",
]

auto_batch_timeout = Property("AUTO_BATCH_TIMEOUT")
available_devices = Property("AVAILABLE_DEVICES")
cache_dir = Property("CACHE_DIR")
cache_encryption_callbacks = Property("CACHE_ENCRYPTION_CALLBACKS")
cache_mode = Property("CACHE_MODE")
compatibility_check = Property("COMPATIBILITY_CHECK")
compilation_num_threads = Property("COMPILATION_NUM_THREADS")
enable_mmap = Property("ENABLE_MMAP")
enable_profiling = Property("PERF_COUNT")
enable_weightless = Property("ENABLE_WEIGHTLESS")
execution_devices = Property("EXECUTION_DEVICES")
force_tbb_terminate = Property("FORCE_TBB_TERMINATE")
inference_num_threads = Property("INFERENCE_NUM_THREADS")
key_cache_group_size = Property("KEY_CACHE_GROUP_SIZE")
key_cache_precision = Property("KEY_CACHE_PRECISION")
loaded_from_cache = Property("LOADED_FROM_CACHE")
max_batch_size = Property("MAX_BATCH_SIZE")
model_name = Property("NETWORK_NAME")
num_streams = Property("NUM_STREAMS")
optimal_batch_size = Property("OPTIMAL_BATCH_SIZE")
optimal_number_of_infer_requests = Property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
range_for_async_infer_requests = Property("RANGE_FOR_ASYNC_INFER_REQUESTS")
range_for_streams = Property("RANGE_FOR_STREAMS")
runtime_requirements = Property("RUNTIME_REQUIREMENTS")
supported_properties = Property("SUPPORTED_PROPERTIES")
value_cache_group_size = Property("VALUE_CACHE_GROUP_SIZE")
value_cache_precision = Property("VALUE_CACHE_PRECISION")
weights_path = Property("WEIGHTS_PATH")
workload_type = Property("WORKLOAD_TYPE")
