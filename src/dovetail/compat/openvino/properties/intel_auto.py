"""The names of properties of the device AUTO."""

from dovetail.compat.openvino.enumerations import Property, SchedulePolicy

__all__ = [
    "SchedulePolicy",
    "device_bind_buffer",
    "devices_utilization_threshold",
    "enable_runtime_fallback",
    "enable_startup_fallback",
    "low_power_device",
    "perf_curve_table",
    "schedule_policy",
]

device_bind_buffer = Property("DEVICE_BIND_BUFFER")
devices_utilization_threshold = Property("DEVICES_UTILIZATION_THRESHOLD")
enable_runtime_fallback = Property("ENABLE_RUNTIME_FALLBACK")
enable_startup_fallback = Property("ENABLE_STARTUP_FALLBACK")
low_power_device = Property("LOW_POWER_DEVICE")
perf_curve_table = Property("PERF_CURVE_TABLE")
schedule_policy = Property("SCHEDULE_POLICY")
