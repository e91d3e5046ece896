"""Secondary indexes: where in history an attribute has a rare value."""

from .manager import StoreIndexes
from .stream_indexes import Catalogue, StreamIndexes

__all__ = ["Catalogue", "StoreIndexes", "StreamIndexes"]
