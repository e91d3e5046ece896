"""Numbers of texts are those that a dictionary of Python gives them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.core.text_numbers import TextNumbers

TEXTS = st.one_of(
    st.none(),
    st.text("ab", max_size=3),
    st.text("ab", min_size=6, max_size=10),
    st.text("aé", min_size=15, max_size=40),
)
BATCHES = st.lists(st.tuples(st.integers(0, 3), st.lists(TEXTS, max_size=60)), max_size=6)


@settings(max_examples=150, deadline=None)
@given(BATCHES, st.sampled_from([pa.string(), pa.binary()]))
def test_texts_are_numbered_in_the_order_in_which_they_first_occur(
    batches: list[tuple[int, list[str | None]]], type_: pa.DataType
) -> None:
    texts, numbers = TextNumbers(), dict[str | None, int]()
    for skipped, batch in batches:
        array = pa.array(batch, pa.string()).cast(type_).slice(skipped)
        expected = [numbers.setdefault(text, len(numbers)) for text in batch[skipped:]]
        assert texts.take(array).tolist() == expected
        assert texts.values.equals(pa.array(list(numbers), pa.string()).cast(type_))


def test_many_texts_of_one_length() -> None:
    texts = TextNumbers()
    names = pa.array([f"user {i % 5000:05d}" for i in range(20_000)])
    assert np.array_equal(texts.take(names), np.arange(20_000) % 5000)
    assert np.array_equal(texts.take(names.slice(7, 100)), np.arange(7, 107))
    assert texts.count == 5000
