"""The names of properties of a device."""

from dovetail.compat.openvino.enumerations import DeviceType as Type, Property

__all__ = [
    "Type",
    "architecture",
    "capabilities",
    "full_name",
    "gops",
    "id",
    "luid",
    "pci_info",
    "priorities",
    "properties",
    "thermal",
    "type",
    "uuid",
]

architecture = Property("DEVICE_ARCHITECTURE")
capabilities = Property("OPTIMIZATION_CAPABILITIES")
full_name = Property("FULL_DEVICE_NAME")
gops = Property("DEVICE_GOPS")
id = Property("DEVICE_ID")
luid = Property("DEVICE_LUID")
pci_info = Property("DEVICE_PCI_INFO")
priorities = Property("MULTI_DEVICE_PRIORITIES")
properties = Property("DEVICE_PROPERTIES")
thermal = Property("DEVICE_THERMAL")
type = Property("DEVICE_TYPE")
uuid = Property("DEVICE_UUID")
