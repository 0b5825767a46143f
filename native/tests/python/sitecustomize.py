"""Import the native core from the file that ``DOVETAIL_SANITIZED`` names; ``native/tests/sanitize.sh`` puts this on the path."""

import importlib.util
import os
import sys

spec = importlib.util.spec_from_file_location("dovetail._native", os.environ["DOVETAIL_SANITIZED"])
assert spec is not None and spec.loader is not None
sys.modules["dovetail._native"] = core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
