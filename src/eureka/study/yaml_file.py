"""A YAML file of a user's, read within bounds. Nothing in it is executed, and dates stay the text that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from eureka.errors import RequestError

LARGEST = 1_000_000
"""Bytes of a file."""
MOST, DEEPEST = 100_000, 50
"""Values of a file with every alias written out, and how deep they may be nested."""
MERGE = "tag:yaml.org,2002:merge"
"""The tag of the key ``<<``, which takes in another map and may be there more than once."""


class PlainLoader(yaml.SafeLoader):
    """Text, numbers, lists and maps; a date is text."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(path: Path) -> Any:
    """What the file holds; a file that cannot be read, or is larger or deeper than any study, is one sentence."""
    text = _text(path)
    try:
        loader = PlainLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check(node, path)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except RecursionError:
        raise RequestError(f"{path} is nested deeper than {DEEPEST} levels.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # a number that is none is a ValueError
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"{path} is not YAML: {' '.join(str(error).split())[:300]}.") from None


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise RequestError(f"cannot read {path}: it is {'a folder' if path.is_dir() else 'no regular file'}.")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise RequestError(f"cannot read {path}: it is larger than {LARGEST:,} bytes, which no study is.")
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(f"cannot read {path}: it is not text in UTF-8.") from None
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}.") from None


def _check(root: yaml.Node, path: Path) -> None:
    """Look at each part once, and count with every alias written out: a few lines can stand for billions of values."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node, depth: int) -> int:
        if depth > DEEPEST:
            raise RequestError(f"{path} is nested deeper than {DEEPEST} levels.")
        if id(node) not in sizes:
            if isinstance(node, yaml.MappingNode):
                _check_keys(node, path)
            children: list[Any] = node.value if isinstance(node, yaml.CollectionNode) else []
            parts = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
            sizes[id(node)] = 1 + sum(size(part, depth + 1) for part in parts)
        return sizes[id(node)]

    if size(root, 0) > MOST:
        raise RequestError(f"{path} holds more than {MOST:,} values once its aliases are written out.")


def _check_keys(node: yaml.MappingNode, path: Path) -> None:
    """Refuse a key that a map has twice: its first value would be lost without a word."""
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
            continue
        if (key.tag, key.value) in seen:
            raise RequestError(f"{path}: the key {key.value!r} is there again in line {key.start_mark.line + 1}; leave out one.")
        seen.add((key.tag, key.value))
