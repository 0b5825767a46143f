"""The names of the package ``openvino.runtime``, which programs for OpenVINO 2022 to 2025 import."""

import dovetail.compat.openvino as package
from dovetail.compat.openvino import *  # noqa: F403
from dovetail.compat.openvino import __version__ as __version__, refuse

__getattr__ = refuse

# `import openvino.runtime.properties` finds the module of the package above.
__path__ = package.__path__
