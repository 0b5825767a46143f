"""The XML parser refuses DTDs, entities and external resources; its errors have a position in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# The maximum size of a file in bytes. The element tree uses up to 40 bytes of memory per byte of the file; a layer has about
# 300 bytes in the file.
LIMIT = 128 * 2**20
_ENCODING = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([^"'>]*)""")
# Characters after a tag other than <dim>.
_TEXT = re.compile(rb">(?<!<dim>)\s*[^<\s]")
# The elements that must not have text. Only <rt_info> and the legacy sections may have text, which is preserved.
_STRUCTURE = frozenset(
    "net layers layer data input output port edges edge body then_body else_body "
    "port_map then_port_map else_port_map back_edges".split()
)


def parse(text: bytes, file: str) -> Element:
    """Parse the XML of a file, and return the root element.

    Raises FormatError [ir.xml] (not well-formed, with line and column), [ir.dtd] (a DTD or entity); UnsupportedError
    [text.encoding] (neither UTF-8 nor ASCII).
    """
    declared = _ENCODING.match(text[:200].lstrip())
    if declared is not None and declared[1].lower() not in (b"utf-8", b"utf8", b"us-ascii", b"ascii"):
        raise UnsupportedError("text.encoding", f"the encoding must be UTF-8, got {declared[1].decode('latin-1')!r}", file=file)
    if text[:2] in (b"\xff\xfe", b"\xfe\xff") or text[:2] in (b"\0<", b"<\0"):
        raise UnsupportedError("text.encoding", "the encoding must be UTF-8, got UTF-16 or UTF-32", file=file)
    return _tree(text, file)


def _tree(text: bytes, file: str) -> Element:
    from xml.etree.ElementTree import TreeBuilder
    from xml.parsers.expat import ErrorString, ExpatError, ParserCreate

    def refuse_dtd(*_: object) -> None:
        raise FormatError("ir.dtd", "the file must not have a DTD or entity", file=file)

    # Without a DTD no entity is declared, and no other file is named. As in OpenVINO, names keep the prefix of a namespace.
    parser, builder = ParserCreate("utf-8"), TreeBuilder()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse_dtd
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(text, True)
    except ExpatError as error:
        place = f"line {error.lineno}, column {error.offset}"
        raise FormatError("ir.xml", f"{place}: {ErrorString(error.code)}", file=file) from None
    root: Element = builder.close()
    return root


def stray_texts(root: Element, text: bytes) -> Iterator[FormatError]:
    """Yield a FormatError [ir.unknown] for each text in a position where IR has no text; ``text`` is the file of ``root``."""
    if b"<!" not in text and _TEXT.search(text) is None:
        return
    for element in root.iter():
        stray = element.tail if element.tail and not element.tail.isspace() else None
        if stray is None and element.tag in _STRUCTURE and element.text and not element.text.isspace():
            stray = element.text
        if stray is not None:
            yield FormatError("ir.unknown", f"there must be no text in or after <{element.tag}>, got {stray.strip()[:40]!r}")
