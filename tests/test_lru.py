"""The cache that the indexes and the map of leaves stand on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from chronicle.core.caches import Lru


def test_the_least_recently_used_goes_first() -> None:
    cache = Lru[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_values_are_weighed_and_replaced() -> None:
    cache = Lru[str, bytes](10, len)
    cache.put("a", b"12345")
    cache.put("a", b"123")
    cache.put("b", b"1234567")
    assert (cache.weight, len(cache)) == (10, 2)
    cache.put("c", b"more than ten bytes")  # alone it stays, and nothing beside it
    assert (cache.get("c"), len(cache)) == (b"more than ten bytes", 1)
    cache.clear()
    assert (cache.weight, len(cache)) == (0, 0)


def test_threads_share_one() -> None:
    cache = Lru[int, int](8)

    def work(seed: int) -> None:
        for n in range(2000):
            key = (n * seed) % 31
            assert cache.get(key) in (None, key)
            cache.put(key, key)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, (3, 5, 7, 11)))
    assert (cache.weight, len(cache)) == (8, 8)
