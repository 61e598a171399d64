"""Where real data comes from."""

from __future__ import annotations

from eureka.data.digits import Images, load_digits

__all__ = ["Images", "load_digits"]
