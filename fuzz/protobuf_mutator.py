"""Mutate ONNX files: message by message through the schema of protobuf, or record by record in the wire format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError

INTEGERS = (0, 1, -1, 2, 3, 7, 16, 64, 127, 255, -2, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    *("", "x", "y", "a" * 300, "\0", "\x1b[2J", "\u202e", "n*m", "-1"),
    *("ai.onnx", "ai.onnx.ml", "com.microsoft", "../x", "/etc/passwd"),
)
LARGEST = 200_000
"""Bytes beyond which a mutated file grows no more."""
_MESSAGE = FieldDescriptor.TYPE_MESSAGE


def mutate(data: bytes, donor: bytes, kinds: tuple[str, ...], random: Random) -> bytes:
    """Return ``data`` with a few mutations; ``donor`` gives foreign messages, ``kinds`` names of operators."""
    if random.random() < 0.08:
        return mutate_records(data, donor, random)
    try:
        model, other = onnx.ModelProto.FromString(data), onnx.ModelProto.FromString(donor)
    except DecodeError:
        return mutate_records(data, donor, random)
    pools = _Pools(model, other, kinds)
    for _ in range(_times(random)):
        message = _chosen(model, random)
        try:
            if random.random() < 0.5:
                _change_meaning(model, pools, random)
            else:
                random.choice(_MUTATIONS)(message, pools, random)
        except (ValueError, TypeError, UnicodeError):
            # The value does not fit the field.
            continue
    try:
        made = model.SerializePartialToString()
    except (EncodeError, ValueError):
        return data
    if random.random() < 0.05:
        made = mutate_records(made, donor, random)
    return made[:LARGEST] if len(made) > LARGEST > len(data) else made


def is_list(field: Any) -> bool:
    """Return whether a field is repeated; protobuf 6.31 gave the question another name."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def _times(random: Random) -> int:
    """Return how many mutations one file gets: 1 most often, 8 at most."""
    return next((count for count in range(1, 8) if random.random() < 0.5), 8)


class _Pools:
    """The values and messages that mutations take from: those of the model and of the donor."""

    def __init__(self, model: Any, donor: Any, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.names: list[str] = []
        self.messages: dict[str, list[Any]] = {}
        for root in (model, donor):
            for message in _messages(root):
                self.messages.setdefault(message.DESCRIPTOR.full_name, []).append(message)
                if root is donor:
                    # Foreign names dangle, and then no rule of an operator is reached.
                    continue
                if isinstance(message, onnx.NodeProto):
                    self.names += [*message.input, *message.output]
                elif isinstance(message, onnx.ValueInfoProto | onnx.AttributeProto | onnx.TensorProto):
                    self.names.append(message.name)

    def value(self, field: Any, random: Random) -> Any:
        """Return a value for a scalar field."""
        kind = field.cpp_type
        if field.name == "op_type" and random.random() < 0.8:
            return random.choice(self.kinds)
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return random.randbytes(random.choice((0, 1, 3, 4, 8, 16, 24, 33)))
            return random.choice(self.names) if self.names and random.random() < 0.7 else random.choice(TEXTS)
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return random.choice(field.enum_type.values).number
        if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            return random.choice(FLOATS)
        return random.choice(INTEGERS) if random.random() < 0.6 else random.randrange(-3, 24)

    def message(self, field: Any, random: Random) -> Any | None:
        """Return a message for a field, of the model or the donor; an empty one at times."""
        found = self.messages.get(field.message_type.full_name)
        return random.choice(found) if found and random.random() < 0.9 else None


def _messages(root: Any) -> Iterator[Any]:
    """Yield a message and all messages inside it."""
    pending = [root]
    while pending:
        message = pending.pop()
        yield message
        for field, value in message.ListFields():
            if field.type == _MESSAGE:
                pending.extend(value if is_list(field) else [value])


def _chosen(model: Any, random: Random) -> Any:
    """Return a message of the model; nodes, attributes and tensors more often than their number says."""
    found = list(_messages(model))
    if random.random() < 0.5:
        nodes = [each for each in found if isinstance(each, onnx.NodeProto | onnx.AttributeProto | onnx.TensorProto)]
        found = nodes or found
    return random.choice(found)


def _change(message: Any, pools: _Pools, random: Random) -> None:
    """Give a field that is set another value."""
    fields = [field for field, _ in message.ListFields() if field.type != _MESSAGE]
    if not fields:
        return _set(message, pools, random)
    field = random.choice(fields)
    if not is_list(field):
        old = getattr(message, field.name)
        if isinstance(old, bytes) and old:
            setattr(message, field.name, _changed_bytes(old, random))
        elif isinstance(old, int) and random.random() < 0.3 and field.cpp_type != FieldDescriptor.CPPTYPE_ENUM:
            setattr(message, field.name, random.choice((old + 1, old - 1, -old, old * 2)))
        else:
            setattr(message, field.name, pools.value(field, random))
        return None
    items = getattr(message, field.name)
    items[random.randrange(len(items))] = pools.value(field, random)
    return None


def _changed_bytes(old: bytes, random: Random) -> bytes:
    place = random.randrange(len(old))
    choice = random.randrange(4)
    if choice == 0:
        return old[:place]
    if choice == 1:
        return old + random.randbytes(random.randrange(1, 9))
    if choice == 2:
        size = random.choice((1, 2, 4, 8))
        number = random.choice(INTEGERS) & ((1 << 8 * size) - 1)
        return (old[:place] + number.to_bytes(size, "little") + old[place + size :])[: len(old)]
    return old[:place] + random.randbytes(1) + old[place + 1 :]


def _set(message: Any, pools: _Pools, random: Random) -> None:
    """Set any field of the message, a foreign one of its type at times; messages come nested in themselves this way."""
    field = random.choice(message.DESCRIPTOR.fields)
    if field.type != _MESSAGE:
        if is_list(field):
            items = getattr(message, field.name)
            items.extend([pools.value(field, random) for _ in range(random.choice((1, 1, 2, 9)))])
        else:
            setattr(message, field.name, pools.value(field, random))
        return
    source = pools.message(field, random)
    copy = None if source is None or source.ByteSize() > LARGEST // 8 else _copied(source)
    target = getattr(message, field.name)
    if is_list(field):
        target = target.add()
    else:
        target.SetInParent()
    if copy is not None:
        target.CopyFrom(copy)


def _remove(message: Any, pools: _Pools, random: Random) -> None:
    """Clear a field, or delete one item of it."""
    fields = [field for field, _ in message.ListFields()]
    if not fields:
        return
    field = random.choice(fields)
    if is_list(field) and random.random() < 0.8:
        items = getattr(message, field.name)
        del items[random.randrange(len(items))]
    else:
        message.ClearField(field.name)


def _repeat(message: Any, pools: _Pools, random: Random) -> None:
    """Duplicate an item of a field once or a few times, at its end or in another place."""
    fields = [field for field, _ in message.ListFields() if is_list(field)]
    if not fields:
        return
    field = random.choice(fields)
    items = list(getattr(message, field.name))
    item = random.choice(items)
    if field.type == _MESSAGE and item.ByteSize() > LARGEST // 8:
        return
    place = random.randrange(len(items) + 1)
    _replace(message, field, items[:place] + [item] * random.choice((1, 1, 1, 2, 20)) + items[place:])


def _reorder(message: Any, pools: _Pools, random: Random) -> None:
    """Swap two items of a field, or shuffle all."""
    fields = [field for field, value in message.ListFields() if is_list(field) and len(value) > 1]
    if not fields:
        return
    field = random.choice(fields)
    items = list(getattr(message, field.name))
    one, other = random.randrange(len(items)), random.randrange(len(items))
    items[one], items[other] = items[other], items[one]
    if random.random() < 0.2:
        random.shuffle(items)
    _replace(message, field, items)


def _copied(message: Any) -> Any:
    return type(message).FromString(message.SerializePartialToString())


def _replace(message: Any, field: Any, items: list[Any]) -> None:
    if field.type == _MESSAGE:
        items = [_copied(item) for item in items]
    message.ClearField(field.name)
    getattr(message, field.name).extend(items)


def _overwrite(message: Any, pools: _Pools, random: Random) -> None:
    """Replace a message with another of its type."""
    found = pools.messages.get(message.DESCRIPTOR.full_name, [])
    source = random.choice(found) if found else None
    if source is not None and source is not message and source.ByteSize() < LARGEST // 8:
        message.CopyFrom(_copied(source))


def _change_meaning(model: Any, pools: _Pools, random: Random) -> None:
    """Change what a sound model says: the value of an attribute, a constant, a declared size, or the operator of a node."""
    found = list(_messages(model))
    kind = random.choice((onnx.AttributeProto, onnx.TensorProto, onnx.TensorProto, onnx.TypeProto.Tensor, onnx.NodeProto))
    chosen = [each for each in found if isinstance(each, kind)]
    if not chosen:
        return
    message = random.choice(chosen)
    if kind is onnx.AttributeProto:
        _change_attribute(message, random)
    elif kind is onnx.TensorProto:
        _change_tensor(message, random)
    elif kind is onnx.NodeProto:
        _change_node(message, pools, random)
    elif message.shape.dim and random.random() < 0.6:
        dim = random.choice(message.shape.dim)
        if random.random() < 0.5:
            dim.dim_value = random.choice((0, 1, 2, 3, 5, 2**31, 2**62, -1))
        else:
            dim.dim_param = random.choice(("n", "m", "n*2", "n+m", "n//2", ""))
    elif random.random() < 0.5:
        message.ClearField("shape")
    else:
        message.elem_type = random.choice((1, 6, 7, 8, 9, 10, 11, 16))


def _change_attribute(attribute: Any, random: Random) -> None:
    """Give an attribute another value of its type."""
    if attribute.ints:
        place = random.randrange(len(attribute.ints) + 1)
        values = list(attribute.ints)
        values[place : place + random.randrange(2)] = [_number(random)] * random.randrange(3)
        attribute.ints[:] = values
    elif attribute.floats:
        attribute.floats[random.randrange(len(attribute.floats))] = random.choice(FLOATS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = random.choice(FLOATS)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = _number(random)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = random.choice(
            (b"", b"linear", b"SAME_UPPER", b"VALID", b"NOTSET", b"nearest", b"bhwc->h", b"reflect", b"max", b"\xff")
        )


def _number(random: Random) -> int:
    return random.randrange(-3, 9) if random.random() < 0.7 else random.choice(INTEGERS)


def _change_tensor(tensor: Any, random: Random) -> None:
    """Give a tensor other elements, or another shape of as many."""
    width = {1: 4, 6: 4, 7: 8, 10: 2, 11: 8}.get(tensor.data_type)
    if width is None or len(tensor.raw_data) < width or random.random() < 0.2:
        if len(tensor.dims) and random.random() < 0.5:
            tensor.dims.append(1)
        elif len(tensor.dims) > 1:
            tensor.dims[0] *= tensor.dims[-1]
            del tensor.dims[-1]
        return
    if tensor.data_type in (6, 7):
        data = (_number(random) & (1 << 8 * width) - 1).to_bytes(width, "little")
    else:
        data = random.choice((bytes(width), b"\xff" * width, bytes(width - 2) + b"\x80\x7f", random.randbytes(width)))
    if len(tensor.dims) == 1 and random.random() < 0.3:
        # A list that is one longer or shorter.
        longer = random.random() < 0.5
        tensor.raw_data = tensor.raw_data + data if longer else tensor.raw_data[:-width]
        tensor.dims[0] += 1 if longer else -1
        return
    place = random.randrange(len(tensor.raw_data) // width) * width
    tensor.raw_data = tensor.raw_data[:place] + data + tensor.raw_data[place + width :]


def _change_node(node: Any, pools: _Pools, random: Random) -> None:
    """Give a node another operator, other inputs, an input more or less, or an attribute of another node."""
    choice = random.randrange(5)
    if choice == 0:
        node.op_type = random.choice(pools.kinds)
    elif choice == 1 and node.input and pools.names:
        node.input[random.randrange(len(node.input))] = random.choice(pools.names)
    elif choice == 2 and pools.names:
        node.input.append(random.choice((*pools.names, "")))
    elif choice == 3 and node.input:
        del node.input[-1]
    elif choice == 4:
        attributes = pools.messages.get("onnx.AttributeProto")
        if attributes:
            node.attribute.append(_copied(random.choice(attributes)))


_MUTATIONS: tuple[Callable[[Any, _Pools, Random], None], ...] = (
    _change, _change, _change, _change, _set, _set, _remove, _remove, _repeat, _reorder, _overwrite,
)  # fmt: skip


# Wire format


def mutate_records(data: bytes, donor: bytes, random: Random) -> bytes:
    """Return ``data`` with faults of encoding: lengths, tags, varints, groups, truncation, splices."""
    for _ in range(_times(random)):
        found = list(_records(data)) or [(0, 0, 0, len(data))]
        start, tag, value, end = random.choice(found)
        number, wire = tag >> 3, tag & 7
        body = data[value:end]
        choice = random.randrange(12)
        if choice == 0:
            data = data[: random.randrange(len(data) + 1)]
        elif choice == 1:
            data = data[:start] + data[end:]
        elif choice == 2:
            data = data[:end] + data[start:end] * random.choice((1, 2, 50)) + data[end:]
        elif choice == 3:
            data = data[:start] + varint(number << 3 | random.randrange(8)) + data[value:]
        elif choice == 4:
            data = (
                data[:start]
                + varint(random.choice((0, 1, 15, 19000, 2**29 - 1, random.randrange(64))) << 3 | wire)
                + data[value:]
            )
        elif choice == 5:
            length = max(0, len(body) + random.choice((-1, 1, 2**31, 2**32, 2**40, 2**63 - 1)))
            data = data[:start] + varint(number << 3 | 2) + varint(length) + body + data[end:]
        elif choice == 6:
            data = data[:start] + varint(number << 3) + varint(random.choice(INTEGERS) & (2**64 - 1)) + data[end:]
        elif choice == 7:
            data = data[:start] + varint(number << 3) + b"\x80" * random.choice((1, 9, 10, 30)) + b"\x01" + data[end:]
        elif choice == 8:
            data = data[:start] + varint(number << 3 | 3) + body + varint(number << 3 | 4) + data[end:]
        elif choice == 9:
            foreign = list(_records(donor))
            first, _, _, last = random.choice(foreign) if foreign else (0, 0, 0, len(donor))
            data = data[:start] + donor[first:last] + data[end:]
        elif choice == 10 and data:
            place = random.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]
        else:
            nested = body
            for _ in range(random.choice((2, 40, 99, 101, 200))):
                nested = varint(number << 3 | 2) + varint(len(nested)) + nested
                if len(nested) > LARGEST:
                    break
            data = data[:start] + nested + data[end:]
        if len(data) > LARGEST:
            data = data[:LARGEST]
    return data


def varint(number: int) -> bytes:
    """Encode an unsigned number as a varint."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _records(data: bytes, first: int = 0, last: int | None = None, depth: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, tag, start of the value, end) of records, those inside others too, as far as they can be read."""
    place, last = first, len(data) if last is None else last
    while place < last:
        start = place
        tag, place = _varint(data, place, last)
        if place < 0 or tag < 8:
            return
        wire, value = tag & 7, place
        if wire == 0:
            _, place = _varint(data, place, last)
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        elif wire == 2:
            length, value = _varint(data, place, last)
            place = value + length if value >= 0 else -1
        else:
            return
        if not 0 <= place <= last:
            return
        yield start, tag, value, place
        if wire == 2 and depth < 12 and place - value > 1:
            yield from _records(data, value, place, depth + 1)


def _varint(data: bytes, place: int, last: int) -> tuple[int, int]:
    """Read a varint; the place is -1 where there is none."""
    found = 0
    for index in range(10):
        if place + index >= last:
            return 0, -1
        byte = data[place + index]
        found |= (byte & 127) << 7 * index
        if byte < 128:
            return found, place + index + 1
    return 0, -1
