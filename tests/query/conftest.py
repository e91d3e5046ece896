"""``auto`` plans here however small the stream is; else it would be compared with itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from chronicle.query.replay import planning


@pytest.fixture(autouse=True, scope="module")
def planned_however_small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "Costs", partial(planning.Costs, plan=0.0))
        yield
