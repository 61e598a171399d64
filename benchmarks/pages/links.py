"""Where files of the repository are in the site, and links that go there."""

from __future__ import annotations

import os.path
import re
from pathlib import PurePosixPath

COPIED = ("docs/**/*.*", "results/**/README.md", "results/**/*.png", "examples/*/README.md", "CHANGELOG.md", "SECURITY.md")
"""What the site takes as it is."""
RENAMED = {"CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}


def site_path(source: str) -> PurePosixPath:
    """The place in the site of a file of the repository.

    >>> str(site_path("docs/howto/ray.md")), str(site_path("SECURITY.md")), str(site_path("results/tiles/README.md"))
    ('howto/ray.md', 'security.md', 'results/tiles/README.md')
    """
    return PurePosixPath(RENAMED.get(source, source.removeprefix("docs/")))


def moved(text: str, source: str) -> str:
    """A page of the repository whose links work in the site.

    >>> moved("[all](../SECURITY.md#reporting) [paper](https://arxiv.org/abs/2310.12956)", "docs/promises.md")
    '[all](security.md#reporting) [paper](https://arxiv.org/abs/2310.12956)'
    """

    def link(match: re.Match[str]) -> str:
        target, hash_mark, anchor = match[1].partition("#")
        if not target or "://" in target:
            return match[0]
        wanted = site_path(os.path.normpath(os.path.join(os.path.dirname(source), target)))  # noqa: PTH118, PTH120
        return f"]({os.path.relpath(wanted, site_path(source).parent)}{hash_mark}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", link, text)
