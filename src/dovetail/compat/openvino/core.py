"""Core: reads and compiles models, with properties for all models that it compiles."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping

from dovetail import __version__
from dovetail.compat.openvino.compiled_model import CompiledModel
from dovetail.compat.openvino.configuration import DEVICE, Configuration, check_device, read_properties
from dovetail.compat.openvino.errors import Partial, Refusal
from dovetail.compat.openvino.model import Model, read_model
from dovetail.compat.openvino.operations import nodes_of
from dovetail.compat.openvino.tensor import Tensor
from dovetail.errors import ArgumentTypeError, EngineError, UnsupportedError

Properties = Mapping[str, object]


class Version:
    """Version describes the runtime: this version of dovetail."""

    major: int
    minor: int
    patch: int

    def __init__(self, description: str) -> None:
        self.description = description
        self.build_number = get_version()
        numbers = [int(part) if part.isdigit() else 0 for part in __version__.split(".")[:3]]
        self.major, self.minor, self.patch = [*numbers, 0, 0, 0][:3]

    def __repr__(self) -> str:
        return f"<Version: {self.build_number} {self.description}>"


def get_version() -> str:
    """Return the version of dovetail, as a text that says so."""
    return f"dovetail {__version__}"


class Core(Partial):
    """Core reads models, and compiles them for the device CPU. AUTO, MULTI and HETERO choose the CPU.

    >>> Core().available_devices
    ['CPU']
    """

    def __init__(self, xml_config_file: str = "") -> None:
        if xml_config_file:
            raise UnsupportedError("argument.value", "xml_config_file is not supported: there are no plugins to configure")
        self._shared: dict[str, object] = {}
        self._of_device: dict[str, object] = {}

    @property
    def available_devices(self) -> list[str]:
        return [DEVICE]

    def get_available_devices(self) -> list[str]:
        return [DEVICE]

    def get_versions(self, device_name: str) -> dict[str, Version]:
        """Return the version of the runtime by device."""
        check_device(device_name)
        return {device_name: Version("dovetail")}

    def read_model(self, model: object, weights: object = None, config: Properties | None = None) -> Model:
        """Read a model: the path of an IR or ONNX file, or bytes.

        ``weights``: the path or the bytes of the constants of an IR. Raises RuntimeError for a file that cannot be read,
        ArgumentTypeError [argument.type] for other sources.
        """
        read_properties(config)
        if isinstance(model, Model):
            return model.clone()
        source = model.getvalue() if isinstance(model, io.BytesIO) else model
        if not (isinstance(source, str | os.PathLike | bytes) or hasattr(source, "read") or hasattr(source, "SerializeToString")):
            raise ArgumentTypeError(
                "argument.type", f"model must be a path, bytes, a file or a Model, got {type(model).__name__}"
            )
        if isinstance(weights, Tensor):
            weights = weights.data.tobytes()
        elif isinstance(weights, io.BytesIO):
            weights = weights.getvalue()
        elif weights is None and isinstance(source, bytes) and source.lstrip()[:1] == b"<":
            weights = b""
        return read_model(source, weights)  # type: ignore[arg-type]

    def compile_model(
        self,
        model: Model | str | os.PathLike[str],
        device_name: str | Properties | None = None,
        config: Properties | tuple[str, object] | None = None,
        *,
        weights: object = None,
    ) -> CompiledModel:
        """Compile a Model or a model file. ``config`` has properties for this model.

        A file is compiled with the plan cache in the folder of the property CACHE_DIR. Raises RuntimeError.
        """
        if isinstance(device_name, Mapping):
            device_name, config = None, device_name
        check_device(device_name or "AUTO")
        configuration = Configuration({**self._shared, **self._of_device, **read_properties(config)})
        if not isinstance(model, Model):
            model = self.read_model(model, weights)
        return CompiledModel(model, configuration, model.file)

    def query_model(self, model: Model, device_name: str, config: Properties | None = None) -> dict[str, str]:
        """Return the device of each operation by its name: the CPU."""
        check_device(device_name)
        return {node.friendly_name: device_name for node in nodes_of(model)}

    def set_property(self, *arguments: str | Properties | tuple[str, object], **named: Properties | tuple[str, object]) -> None:
        """Set properties: ``set_property(properties)`` for all devices, or ``set_property(device_name, properties)``."""
        items = [*arguments, *named.values()]
        device = items.pop(0) if len(items) > 1 else None
        if len(items) != 1 or isinstance(items[0], str) or not (device is None or isinstance(device, str)):
            raise TypeError(f"set_property needs properties, and before them the name of a device or none, got {items!r}")
        if device is not None:
            check_device(device)
        (self._shared if device is None else self._of_device).update(read_properties(items[0]))

    def get_property(self, device_name: str, property: str | None = None) -> object:
        """Return a property of a device, or of the Core. Raises EngineError [argument.value] for an unknown one."""
        if property is None:
            name = str(device_name)
            if name not in ("CACHE_DIR", "ENABLE_MMAP", "FORCE_TBB_TERMINATE", "CACHE_MODE"):
                raise EngineError("argument.value", f"get_property with unsupported property: {name!r}")
            return Configuration(self._shared).value(name)
        check_device(device_name)
        return Configuration({**self._shared, **self._of_device}).get_device_property(str(property))

    add_extension = Refusal("operators are added to dovetail (CONTRIBUTING.md)")
    import_model = Refusal("compile the model file with the property CACHE_DIR")
    create_context = Refusal("the memory of the CPU needs no context")
    get_default_context = Refusal("the memory of the CPU needs no context")
    register_plugin = Refusal("there are no plugins")
    register_plugins = Refusal("there are no plugins")

    def unload_plugin(self, device_name: str) -> None:
        """Do nothing: there are no plugins."""
        check_device(device_name)


def compile_model(
    model: Model | str | os.PathLike[str],
    device_name: str | None = "AUTO",
    config: Properties | None = None,
) -> CompiledModel:
    """Compile a Model or a model file with a new Core."""
    return Core().compile_model(model, device_name, config)
