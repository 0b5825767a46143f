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
