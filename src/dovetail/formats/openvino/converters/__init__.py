"""Converters for OpenVINO operators without an op mapping, one module per family; importing a module registers its converters.

``OPENVINO`` is the dialect with all converters, which the first use of this name imports. The import of a model uses the dialect
of :mod:`dovetail.formats.openvino.dialect`, which imports the converters of the model's operators alone.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.formats.openvino.dialect import OPENVINO

__all__ = ["OPENVINO"]


def _import_dialect(name: str) -> object:
    if name != "OPENVINO":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dovetail.formats.openvino.dialect import OPENVINO

    return OPENVINO.load_converters()


if not TYPE_CHECKING:
    # Type checkers, which do not see it, report names that the package lacks.
    __getattr__ = _import_dialect
