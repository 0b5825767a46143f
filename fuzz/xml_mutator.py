"""Mutate OpenVINO IR: elements and attributes of the XML, its text, and the side file of weights."""

from __future__ import annotations

import copy
from random import Random
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

NUMBERS = (
    *("0", "1", "-1", "2", "7", "00", "+1", "1.5", "", "1e3", "0x10", "?", "-1..4", "4..1", "nan", "inf", "1,2", "1,2,3,4"),
    *("2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551615"),
    *("-9223372036854775808", "9" * 5000, "\u0661"),
)
TEXTS = (
    *("", "x", "a" * 300, "\x1b[2J", "\u202e", "../x", "true", "false", "TRUE", "numpy"),
    *("f32", "i64", "string", "u4", "undefined", "FP32", "I64"),
)
SNIPPETS = (
    *("<!DOCTYPE net>", '<!DOCTYPE n [<!ENTITY x SYSTEM "file:///etc/passwd">]>', "&x;", "&#0;", "&#x41;", "<!-- -->"),
    *("<![CDATA[<a>]]>", "<?php 1?>", "\0", "\ufeff", "<a>", "</a>", "<a/>", "]]>", ' x="1"', "xmlns:xi='u'", "\r\n", "]"),
)
LARGEST = 300_000


def mutate(
    text: bytes, weights: bytes, donor: bytes, donor_weights: bytes, kinds: tuple[str, ...], random: Random
) -> tuple[bytes, bytes]:
    """Return the XML and its side file with a few mutations; ``donor`` gives foreign elements, ``kinds`` types of layers."""
    if random.random() < 0.2:
        weights = _mutated_weights(weights, donor_weights, random)
        if random.random() < 0.3:
            return text, weights
    if random.random() < 0.1:
        return _mutated_text(text, random), weights
    try:
        root, other = ElementTree.fromstring(text), ElementTree.fromstring(donor)
    except (ElementTree.ParseError, ValueError):
        return _mutated_text(text, random), weights
    pools = _Pools(root, other, kinds)
    for _ in range(next((count for count in range(1, 8) if random.random() < 0.5), 8)):
        _mutate_once(root, pools, random)
    made = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    if len(made) > LARGEST > len(text):
        return text, weights
    if random.random() < 0.03:
        made = _mutated_text(made, random)
    return made, weights


class _Pools:
    """The values and elements that mutations take from: those of the model and of the donor."""

    def __init__(self, root: Element, donor: Element, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.values: dict[str, list[str]] = {}
        self.elements: dict[str, list[Element]] = {}
        for each in (root, donor):
            for element in each.iter():
                self.elements.setdefault(element.tag, []).append(element)
                for name, value in element.attrib.items():
                    self.values.setdefault(name, []).append(value)

    def value(self, name: str, old: str, random: Random) -> str:
        """Return another value for an attribute."""
        choice = random.random()
        if name == "type" and choice < 0.7:
            return random.choice(self.kinds)
        if name == "version" and choice < 0.7:
            return random.choice(("opset1", "opset3", "opset8", "opset13", "opset16", "10", "11", "12"))
        if choice < 0.35 and name in self.values:
            return random.choice(self.values[name])
        number = old.strip().lstrip("-")
        if number.isdecimal() and len(number) < 20 and choice < 0.65:
            return str(int(old.strip()) + random.choice((-1, 1, 2, 1 << 31)))
        if "," in old and choice < 0.8:
            parts = old.split(",")
            parts[random.randrange(len(parts))] = random.choice(NUMBERS)
            return ",".join(parts)
        return random.choice(NUMBERS) if choice < 0.85 else random.choice(TEXTS)


# Changes of an attribute (0 to 3) most often: elements added or renamed (10 to 13) end in the reader.
_CHOICES = (0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 9, 9, 9, 10, 11, 12, 13)


def _mutate_once(root: Element, pools: _Pools, random: Random) -> None:
    every = list(root.iter())
    parents = {child: parent for parent in every for child in parent}
    if random.random() < 0.5:
        every = [each for each in every if each.tag in ("layer", "data", "edge", "port", "dim", "input", "output")] or every
    element = random.choice(every)
    parent = parents.get(element)
    choice = random.choice(_CHOICES)
    data = [each for each in every if each.tag == "data" and each.attrib]
    if data and random.random() < 0.3:
        element, choice = random.choice(data), 0
    if choice <= 3 and element.attrib:
        name = random.choice(list(element.attrib))
        element.set(name, _legal(pools.value(name, element.attrib[name], random)))
    elif choice == 4 and element.attrib:
        del element.attrib[random.choice(list(element.attrib))]
    elif choice == 5 and pools.values:
        name = random.choice(list(pools.values))
        element.set(name, _legal(pools.value(name, random.choice(pools.values[name]), random)))
    elif choice == 6 and parent is not None:
        parent.remove(element)
    elif choice == 7 and parent is not None:
        for _ in range(random.choice((1, 1, 1, 3, 30))):
            parent.insert(random.randrange(len(parent) + 1), copy.deepcopy(element))
    elif choice == 8 and parent is not None and len(parent) > 1:
        children = list(parent)
        one, other = random.randrange(len(children)), random.randrange(len(children))
        children[one], children[other] = children[other], children[one]
        parent[:] = children
    elif choice == 9 and parent is not None:
        source = copy.deepcopy(random.choice(pools.elements[element.tag]))
        parent[list(parent).index(element)] = source
    elif choice == 10:
        inner = copy.deepcopy(random.choice(random.choice(list(pools.elements.values()))))
        for _ in range(random.choice((1, 1, 1, 1, 40))):
            element.append(inner)
    elif choice == 11 and parent is not None:
        for _ in range(random.choice((1, 3, 40))):
            nested = Element(element.tag, dict(element.attrib))
            nested[:] = list(element)
            element[:] = [nested]
    elif choice == 12:
        element.text = _legal(random.choice(NUMBERS if element.tag == "dim" or random.random() < 0.5 else TEXTS))
    else:
        element.tag = random.choice(list(pools.elements))


def _legal(text: str) -> str:
    """Return text without the characters that ElementTree would write as they are and XML forbids; at times with them."""
    return text if len(text) % 7 == 0 else "".join(each for each in text if each >= " ")


def _mutated_text(text: bytes, random: Random) -> bytes:
    """Return the XML with faults of its text."""
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(text) + 1)
        choice = random.randrange(6)
        if choice == 0:
            text = text[:place]
        elif choice == 1:
            text = text[:place] + random.choice(SNIPPETS).encode() + text[place:]
        elif choice == 2:
            text = text[:place] + random.randbytes(random.choice((1, 4))) + text[place + random.randrange(4) :]
        elif choice == 3:
            text = text[:place] + text[place + random.randrange(200) :]
        elif choice == 4:
            encoding = random.choice(("utf-16", "utf-32", "utf-7", "cp037", "latin-1"))
            text = text.decode("utf-8", "replace").encode(encoding, "replace")
        else:
            depth = random.choice((50, 500, 5000))
            text = text.replace(b"</net>", b"<rt_info>" + b"<a>" * depth + b"</a>" * depth + b"</rt_info></net>")
    return text[:LARGEST]


def _mutated_weights(weights: bytes, donor: bytes, random: Random) -> bytes:
    """Return the side file shortened, lengthened or changed."""
    choice = random.randrange(5)
    if choice == 0 or not weights:
        return weights[: random.randrange(len(weights) + 1)]
    place = random.randrange(len(weights))
    if choice == 1:
        return weights + random.randbytes(random.randrange(1, 100))
    if choice == 2:
        number = random.choice((0, 1, -1, 2**31 - 1, -(2**31), 2**62, -(2**63))) & (2**64 - 1)
        start = place - place % 8
        return (weights[:start] + number.to_bytes(8, "little") + weights[start + 8 :])[: len(weights)]
    if choice == 3:
        return donor
    return weights[:place] + random.randbytes(1) + weights[place + 1 :]
