"""The enumerations that property values are chosen from."""

from __future__ import annotations

import enum


class Enumeration(enum.Enum):
    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class PerformanceMode(Enumeration):
    LATENCY = 1
    THROUGHPUT = 2
    CUMULATIVE_THROUGHPUT = 3


class ExecutionMode(Enumeration):
    PERFORMANCE = 1
    ACCURACY = 2


class Priority(Enumeration):
    LOW = 0
    MEDIUM = 1
    HIGH = 2
    DEFAULT = 1


class SchedulingCoreType(Enumeration):
    ANY_CORE = 0
    PCORE_ONLY = 1
    ECORE_ONLY = 2


class ModelDistributionPolicy(Enumeration):
    TENSOR_PARALLEL = 0
    PIPELINE_PARALLEL = 1


class CacheMode(Enumeration):
    OPTIMIZE_SIZE = 0
    OPTIMIZE_SPEED = 1


class WorkloadType(Enumeration):
    DEFAULT = 0
    EFFICIENT = 1


class Level(Enumeration):
    NO = -1
    ERR = 0
    WARNING = 1
    INFO = 2
    DEBUG = 3
    TRACE = 4


class DeviceType(Enumeration):
    INTEGRATED = 0
    DISCRETE = 1


class TbbPartitioner(Enumeration):
    STATIC = 1
    AUTO = 2


class SchedulePolicy(Enumeration):
    ROUND_ROBIN = 0
    DEVICE_PRIORITY = 1
    DEFAULT = 1


class Num:
    """Num is a number of streams; AUTO and NUMA leave the number to the runtime."""

    AUTO: Num
    NUMA: Num

    def __init__(self, value: int) -> None:
        self._value = value

    def to_integer(self) -> int:
        return self._value

    def __int__(self) -> int:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Num) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"<Num: {self._value}>"


Num.AUTO, Num.NUMA = Num(-1), Num(-2)


class Property(str):
    """Property is the name of a property. Called with a value, it returns the pair of both.

    >>> Property("NUM_STREAMS")(2)
    ('NUM_STREAMS', 2)
    """

    __slots__ = ()

    def __call__(self, *values: object) -> str | tuple[str, object]:
        return (str(self), values[0]) if values else str(self)
