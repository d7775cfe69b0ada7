"""Reads foreign YAML node by node, without evaluating or constructing anything.

Tags, anchors and aliases are refused: tags construct objects, the others can grow without bound.
Errors give file, line and column.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import yaml

from comparative_benchmark.errors import UsageError
from openxla.benchmark.text import one_line

Plain: TypeAlias = "dict[str, Plain] | list[Plain] | str | int | float | bool | None"
_MOST_BYTES = 2**20
# Real files have few levels; PyYAML's time grows with the square of the depth.
_MOST_LEVELS = 20
# Limit on a message that lists all known names.
_MOST_LETTERS = 800
# Python does not convert integers of more than 4,300 digits.
_LONGEST_NUMBER = 1000
# Neither paths nor arguments can contain these, but YAML has escapes for them.
_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?")
_CONSTANTS: Mapping[str, bool | None] = {
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class YamlFile:
    """A file, with the locations of its content."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def document(self) -> yaml.Node:
        """Returns the root node.

        Raises:
          UsageError: the file cannot be read, is empty, or is not plain YAML.
        """
        try:
            # Do not wait for the writer of a pipe.
            with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise UsageError(f"{self.path} is not a regular file")
                content = file.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise UsageError(f"{self.path} is larger than {_MOST_BYTES} bytes")
            text, level = content.decode(), 0
            for event in yaml.parse(text, yaml.SafeLoader):
                level += isinstance(event, yaml.CollectionStartEvent)
                level -= isinstance(event, yaml.CollectionEndEvent)
                if level > _MOST_LEVELS:
                    self.fail(event, f"more than {_MOST_LEVELS} nested levels")
                if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                    self.fail(event, "anchors and aliases are not supported")
                if tag := getattr(event, "tag", None):
                    self.fail(event, f"tag {tag!r} is not supported")
                if _NO_TEXT.search(getattr(event, "value", "")):
                    self.fail(event, "null characters and surrogates are not supported")
            node = yaml.compose(text, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise UsageError(f"{self.path}{where}: invalid YAML: {error.problem}") from error
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror or error}") from error
        # For code points that do not exist, PyYAML raises ValueError or OverflowError.
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            reason = one_line(str(error))
            raise UsageError(f"{self.path} cannot be read: {reason}") from error
        if node is None:
            raise UsageError(f"{self.path} is empty")
        return node

    def fail(self, node: Any, text: str) -> NoReturn:
        """Raises a `UsageError` at a node.

        Raises:
          UsageError: always.
        """
        raise UsageError(f"{self.place(node)}: {one_line(text, _MOST_LETTERS)}")

    def place(self, node: Any) -> str:
        """Returns `file:line:column` of a node."""
        mark = node.start_mark
        return f"{self.path}:{mark.line + 1}:{mark.column + 1}"

    def items(self, node: yaml.Node, expected: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Returns key and value nodes of a mapping, by name.

        Raises:
          UsageError: the node is not a mapping, or a key is duplicate or not a string.
        """
        if not isinstance(node, yaml.MappingNode):
            self.fail(node, f"{expected} must be a mapping")
        items: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.fail(key, f"keys in {expected} must be strings")
            if key.value in items:
                self.fail(key, f"duplicate key {key.value!r} in {expected}")
            items[key.value] = (key, value)
        return items

    def plain(self, node: yaml.Node) -> Plain:
        """Returns a node as plain values; numbers and constants follow YAML 1.2.

        Raises:
          UsageError: a key is duplicate or not a string.
        """
        if isinstance(node, yaml.MappingNode):
            return {name: self.plain(v) for name, (_, v) in self.items(node, "a mapping").items()}
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item) for item in node.value]
        return scalar(str(node.value), quoted=getattr(node, "style", None) is not None)


def scalar(text: str, *, quoted: bool = False) -> str | int | float | bool | None:
    """Returns the value of a scalar in YAML 1.2's core schema; a quoted one is a string."""
    if quoted:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
