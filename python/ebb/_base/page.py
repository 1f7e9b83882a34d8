# SPDX-License-Identifier: Apache-2.0
"""What can be shown as a page."""

from __future__ import annotations

import json
import math
import os
import pathlib
from typing import Any

from ebb import _core


class HasPage:
    """`to_html`, and the page in a notebook."""

    def _page(self, quick: bool) -> str:
        """The page; `quick`: without what takes long to find out."""
        raise NotImplementedError

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The page that ``ebb view`` makes: one HTML file that needs no network. With ``path`` it is written there, too."""
        page = self._page(quick=False)
        if path is not None:
            pathlib.Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        return _core.in_frame(self._page(quick=True))


def as_json(value: Any) -> str:
    """JSON proper: numbers that are not finite are null."""
    return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(own) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
