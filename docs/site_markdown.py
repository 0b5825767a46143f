"""Hooks of MkDocs and an extension of Griffe that bring Markdown and docstrings into the form that the site needs."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {
    "README.md": "project/overview.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
"""The documents at the root of the repository, and their pages of the site."""
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
LINK = re.compile(r"\[([^\[\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
ROLE = re.compile(r":(?:func|class|meth|mod):`~?([\w.]+)`")
CODE = re.compile(r"(?<![\w`])\[([a-z]+\.[a-z*][\w.*-]*)\](?![`(])")
ENTRY = re.compile(r"^\| `([a-z]+\.[\w.-]+)` \|", re.M)
SPAN = re.compile(r"\[[^\[\]]*\]\([^)]*\)|(`+)(?P<code>.+?)(?<!`)\1(?!`)|\[(?P<bracket>[a-z]+\.[\w.*-]+)\](?![(\[])", re.S)
"""A link, a span of code, or an error code in brackets."""
DOCUMENT = re.compile(r"(?<!`)\bdocs/([\w/]+)\.md")
REFERENCE = re.compile(r".*; see :func:`dovetail\.([\w.]+)`\.", re.S)
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.M)


CODES = {code: code for code in ENTRY.findall((ROOT / "docs" / "errors.md").read_text(encoding="utf-8"))}
"""The anchor in docs/errors.md of each error code; that of a family, such as ``input.*``, is its first code."""
CODES = {f"{code.partition('.')[0]}.*": code for code in reversed(CODES)} | CODES


def link_codes(prose: str, page: str) -> str:
    """Make each error code of Markdown without fences a link to its entry in ``page``, the address of errors.md."""

    def link(span: re.Match[str]) -> str:
        code = span["bracket"] or (span["code"] or "").strip("[]")
        return f"[`{code}`]({page}#{CODES[code]})" if code in CODES else span[0]

    return SPAN.sub(link, prose)


def on_files(files: Any, config: Any) -> Any:
    """Add the documents at the root of the repository to the pages of the site."""
    for name, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a page, and make error codes links to their entries, which get anchors in errors.md.

    A link leads to the page of the site where the target has one; else it becomes the target's path as code.
    """
    uri = page.file.src_uri
    source = {page_uri: name for name, page_uri in ROOT_PAGES.items()}.get(uri, f"docs/{uri}")

    def rewrite(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        page_uri = ROOT_PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if page_uri is not None and files.get_file_from_path(page_uri) is not None:
            return f"[{text}]({posixpath.relpath(page_uri, posixpath.dirname(uri) or '.')}{anchor})"
        if not (ROOT / path).exists():
            return link[0]
        return f"`{path}`" if text.strip("`") in (path, target) else f"{text} (`{path}`)"

    errors = "" if uri == "errors.md" else posixpath.relpath("errors.md", posixpath.dirname(uri) or ".")
    parts = FENCE.split(markdown)
    text = "".join(part if index % 2 else link_codes(LINK.sub(rewrite, part), errors) for index, part in enumerate(parts))
    return text if errors else re.sub(r"^\| (\[`([\w.-]+)`\]\(#\2\)) \|", r'| <span id="\2">\1</span> |', text, flags=re.M)


def markdown_of_docstring(text: str, public: set[str]) -> str:
    """Return a docstring as Markdown for a page of ``docs/api``.

    Roles of ``public`` names, paths of documents and error codes are links; other roles are code.
    """

    def reference(role: re.Match[str]) -> str:
        name = role[1].removeprefix("dovetail.")
        return f"[`{name}`][dovetail.{name}]" if name.split(".")[0] in public else f"`{name}`"

    text = EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)
    parts = FENCE.split(text)
    for index in range(0, len(parts), 2):
        prose = CODE.sub(r"`\1`", parts[index])
        prose = re.sub(r"``(.+?)``", r"`\1`", prose, flags=re.S)
        prose = ROLE.sub(reference, prose)
        prose = DOCUMENT.sub(r"[\1.md](../\1.md)", prose)
        prose = link_codes(prose, "../errors.md")
        parts[index] = re.sub(r"::$", ":", prose, flags=re.M)
    return "".join(parts)


class DocstringMarkdown(griffe.Extension):
    """DocstringMarkdown rewrites the docstrings of the package as Markdown."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite every docstring once the package is read, because only then its public names are known.

        A docstring that refers to that of a function without a page becomes the docstring of the function.
        """
        public = {str(name) for name in pkg.exports or ()}
        items: list[griffe.Object] = [pkg]
        for item in items:
            items += [member for member in item.members.values() if isinstance(member, griffe.Object)]
        texts = {id(item): item.docstring.value for item in items if item.docstring is not None}
        for item in items:
            if item.docstring is None:
                continue
            reference = REFERENCE.fullmatch(item.docstring.value)
            if reference is not None and reference[1] not in public:
                target = pkg[reference[1]]
                item.docstring.value = texts[id(target.final_target if target.is_alias else target)]
            item.docstring.value = markdown_of_docstring(item.docstring.value, public)
