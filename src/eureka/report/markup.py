"""HTML that is safe unless it says otherwise: every text is escaped, only `Html` is taken as it is."""

from __future__ import annotations

import html
import json
from typing import Any


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | bool) -> Html:
    """An element. ``class_`` is written class, ``data_x`` data-x; an attribute that is True stands alone, False is left out.

    >>> tag("b", "a < b", class_="hot")
    '<b class="hot">a &lt; b</b>'
    """
    opening = "".join([name, *(_attribute(key, value) for key, value in attributes.items() if value is not False)])
    return Html(f"<{opening}>{join(*children)}</{name}>")


def join(*children: str) -> Html:
    """Children one after the other, escaped where they are not `Html`."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def _attribute(key: str, value: str | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'


def script_json(content: Any) -> str:
    r"""JSON that can stand inside a script element: nothing in it ends the element or opens a comment.

    >>> print(script_json("</script><!-- &"))
    "\u003c/script\u003e\u003c!-- \u0026"
    """
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
