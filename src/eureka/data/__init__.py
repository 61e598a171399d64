"""Where real data comes from: sources, cache, decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.data.bpe import EncodedCorpus, encoded_corpus
    from eureka.data.catalogue import CATALOGUE, find_dataset
    from eureka.data.digits import load_digits
    from eureka.data.fetching import default_sources, fetch
    from eureka.data.images import Images
    from eureka.data.loading import load_documents, load_images
    from eureka.data.store import cache_folder, located

__all__ = [
    "CATALOGUE",
    "Images",
    "EncodedCorpus",
    "cache_folder",
    "default_sources",
    "encoded_corpus",
    "fetch",
    "find_dataset",
    "load_digits",
    "load_documents",
    "load_images",
    "located",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Images": "eureka.data.images",
        **dict.fromkeys(["EncodedCorpus", "encoded_corpus"], "eureka.data.bpe"),
        "load_digits": "eureka.data.digits",
        **dict.fromkeys(["CATALOGUE", "find_dataset"], "eureka.data.catalogue"),
        **dict.fromkeys(["default_sources", "fetch"], "eureka.data.fetching"),
        **dict.fromkeys(["load_documents", "load_images"], "eureka.data.loading"),
        **dict.fromkeys(["cache_folder", "located"], "eureka.data.store"),
    },
)
