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
    from xml.etree.ElementTree import ParseError
    from xml.parsers.expat import ErrorString

    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root: Element = fromstring(text, forbid_dtd=True, forbid_entities=True, forbid_external=True)
    except ParseError as error:
        line, column = getattr(error, "position", (0, 0))
        raise FormatError("ir.xml", f"line {line}, column {column}: {ErrorString(error.code)}", file=file) from None
    except DefusedXmlException as error:
        raise FormatError("ir.dtd", f"the file must not have a DTD or entity ({type(error).__name__})", file=file) from None
    except (ValueError, LookupError) as error:
        raise FormatError("ir.xml", f"the file must be XML: {error}", file=file) from None
    return root


def stray_texts(root: Element) -> Iterator[FormatError]:
    """Yield a FormatError [ir.unknown] for each text in a position where IR has no text."""
    for element in root.iter():
        stray = element.tail if element.tail and not element.tail.isspace() else None
        if stray is None and element.tag in _STRUCTURE and element.text and not element.text.isspace():
            stray = element.text
        if stray is not None:
            yield FormatError("ir.unknown", f"there must be no text in or after <{element.tag}>, got {stray.strip()[:40]!r}")
