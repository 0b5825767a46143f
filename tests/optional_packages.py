"""The packages of the extra ``oracles``: where one is not installed, tests that need it are skipped."""

from __future__ import annotations

import re
from importlib.util import find_spec

OPTIONAL_PACKAGES = ("torch", "jax", "dask", "distributed", "ray", "zarr", "pyarrow", "pandas", "PIL", "fastapi", "httpx")


def missing_package(error: Exception) -> str | None:
    """Return the optional package that is not installed and that ``error`` names; None for another error."""
    return next((name for name in OPTIONAL_PACKAGES if re.search(rf"\b{name}\b", str(error)) and not find_spec(name)), None)
