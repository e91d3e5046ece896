"""docs/security.md is true: scopes, settings and limits are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import chronicle
from chronicle.query.sql.nesting import TEXT_LENGTH_MAX
from chronicle.server.access.settings import Settings
from chronicle.server.access.tokens import SCOPES
from chronicle.tests.fuzz import target

ROOT = Path(chronicle.__file__).parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
LIMITING = re.compile(r"^max_|_timeout_ms$|_memory_bytes$")
"""Names of settings that bound what a client may take."""


def test_every_scope_has_a_row() -> None:
    assert set(re.findall(r"^\| a token with `(\w+)`", PAGE, re.MULTILINE)) == set(SCOPES)


def test_the_list_has_every_setting_that_limits_a_client_and_no_other() -> None:
    section = PAGE[PAGE.index("## What limits a client") :].partition("\n## ")[0]
    listed = set(re.findall(r"`CHRONICLE_(\w+)`", section))
    limits = {name.upper() for name in Settings.model_fields if LIMITING.search(name)}
    assert listed == limits - {"DRAIN_TIMEOUT_MS"}  # the server's own time to stop
    named = set(re.findall(r"`CHRONICLE_(\w+)`", PAGE))
    assert named <= {name.upper() for name in Settings.model_fields}


def test_fixed_limits_are_those_of_the_code() -> None:
    assert f"a statement has at most {TEXT_LENGTH_MAX >> 20} MiB" in PAGE


def test_what_the_watcher_looks_for_is_what_the_page_says() -> None:
    assert f"memory more than {target.MEMORY_ABOVE_BASE >> 30} GiB above the base" in PAGE
