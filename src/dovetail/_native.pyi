from collections.abc import Sequence
from typing import Any

compiler: str

def copy_window(
    dst: Any,  # a writable buffer
    src: Any,  # a buffer
    sizes: Sequence[int],
    dst_offset: int,
    dst_strides: Sequence[int],
    src_offset: int,
    src_strides: Sequence[int],
    itemsize: int,
) -> None: ...

# Each answers None where a case is not plain.
def try_concat(arrays: list[Any], axis: int, out: Any) -> Any: ...
def try_copy(view: Any, out: Any) -> Any: ...
def try_split(array: Any, lengths: list[int], axis: int, out: list[Any]) -> Any: ...
def array_threads() -> int: ...
def past_cache_from() -> int: ...

# Where the elements of each lie; 0 for what is no array.
def addresses(items: list[Any]) -> list[int]: ...
