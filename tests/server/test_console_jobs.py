"""Jobs in the console, in a real Chromium: what they do is done, told, refused and cancelled.

What else is asserted of every page: see :mod:`test_console_pages`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chronicle.catalog.store_catalog import StoreCatalog

from .console_page import Console


def test_an_administrator_runs_jobs_and_sets_retention(
    tmp_path: Path, steps: Any, open_console: Callable[..., Console]
) -> None:
    backups = tmp_path / "backups"
    backups.mkdir()
    console = open_console(backup_directory=backups)
    console.open("#/admin")
    page = console.page
    scopes = page.get_by_role("form", name="New token").get_by_role("group", name="Scopes")
    assert scopes.get_by_label("read").is_checked()  # waits for the form
    assert scopes.get_by_role("checkbox", checked=True).count() == 1
    jobs = page.get_by_role("region", name="Jobs", exact=True)
    jobs.get_by_label("Kind of job").select_option("check")
    jobs.get_by_role("button", name="Start job").click()
    jobs.get_by_text(re.compile("^sound: 2,000 events")).wait_for()
    jobs.get_by_label("Kind of job").select_option("backup")
    jobs.get_by_label("Name of the backup").fill("monday")
    jobs.get_by_role("button", name="Start job").click()
    jobs.get_by_text("stored as monday").wait_for()
    assert (backups / "monday").is_dir()
    console.expected = ["400"]
    jobs.get_by_label("Name of the backup").fill("../elsewhere")
    jobs.get_by_role("button", name="Start job").click()
    jobs.get_by_role("alert").get_by_text("a backup's name").wait_for()
    kept = page.get_by_role("table", name="Backups").get_by_role("row").filter(has_text="monday")
    kept.filter(has_text="whole").filter(has_text="steps 2,000").wait_for()

    storage = page.get_by_role("region", name="Storage", exact=True)
    storage.get_by_role("button", name="Change how long steps keeps events").click()
    kept = storage.get_by_role("textbox", name="steps keeps")
    kept.fill("for ever")
    storage.get_by_role("button", name="Set how long").click()
    storage.get_by_role("button", name="Set how long steps keeps events: sure?").click()
    storage.get_by_role("alert").wait_for()
    kept.fill("30 days")
    storage.get_by_role("button", name="Set how long").click()
    storage.get_by_role("button", name="Set how long steps keeps events: sure?").click()
    storage.get_by_role("button", name="Change how long steps keeps events").wait_for()
    storage.get_by_role("cell", name="30 days").wait_for()
    (row,) = steps.sql("SELECT retention FROM chronicle.streams WHERE stream = 'steps'").fetchall()
    assert row == ("30 days",)


def test_jobs_write_and_read_files_and_name_what_they_did(
    tmp_path: Path, steps: Any, open_console: Callable[..., Console]
) -> None:
    """Export, import, and what the server refuses to move; jobs of kinds the form has not."""
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    console = open_console(exchange_directory=exchange)
    console.open("#/admin")
    page = console.page
    jobs = page.get_by_role("region", name="Jobs", exact=True)
    kinds = jobs.get_by_label("Kind of job")
    begin = jobs.get_by_role("button", name="Start job")
    kinds.wait_for()
    assert kinds.get_by_role("option").all_inner_texts() == [
        "backup", "check", "compact", "move", "export", "import",
    ]  # fmt: skip
    kinds.select_option("export")
    jobs.get_by_label("Query to export").fill("SELECT t, v FROM steps WHERE v < 3")
    assert begin.is_disabled()
    jobs.get_by_label("File to write").fill("low.csv")
    begin.click()
    few = steps.sql("SELECT count(*) FROM steps WHERE v < 3").fetchall()[0][0]
    jobs.get_by_text(re.compile(f"^{few} rows, .* in low.csv$")).wait_for()
    jobs.get_by_label("Stream to export").select_option("steps")
    assert jobs.get_by_label("Query to export").count() == 0
    jobs.get_by_label("File to write").fill("all.parquet")
    begin.click()
    jobs.get_by_text(re.compile("^2,000 rows, .* in all.parquet$")).wait_for()
    assert sorted(path.name for path in exchange.iterdir()) == ["all.parquet", "low.csv"]
    kinds.select_option("import")
    jobs.get_by_label("File to read").fill("low.csv")
    jobs.get_by_label("a new stream").check()
    jobs.get_by_label("Name of the new stream").fill("low")
    assert begin.is_disabled()
    jobs.get_by_label("Time column of the new stream").fill("t")
    begin.click()
    jobs.get_by_text(f"{few} events stored").wait_for()
    assert steps.sql("SELECT count(*) FROM low").fetchall() == [(few,)]
    console.expected = ["400"]
    kinds.select_option("move")
    jobs.get_by_label("Age of what moves").fill("90 days")
    begin.click()
    jobs.get_by_role("alert").get_by_text("CHRONICLE_OBJECTS").wait_for()
    told = {
        "kind": "move", "job_id": "j", "state": "done", "progress": 1, "error": None,
        "created_at": "2026-01-01T00:00:00Z", "started_at": None, "ended_at": None,
        "result": {"streams": {"a": {"segments": 2, "bytes": 3 << 20}, "b": {"segments": 1,
                                                                            "bytes": 1 << 20}}},
    }  # fmt: skip
    later = {**told, "job_id": "k", "kind": "polish", "result": {"shine": 9}}
    page.route("**/v1/jobs", lambda route: route.fulfill(json={"jobs": [told, later]}))
    jobs.get_by_text("3 segments moved, 4.0 MiB").wait_for()
    jobs.get_by_text('{"shine":9}').wait_for()


def test_an_index_is_built_as_a_job_with_progress(
    steps: Any, open_console: Callable[..., Console], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made on the page of its stream and under Admin; it can be cancelled, and is dropped then."""
    listed = StoreCatalog.list_indexes
    built = threading.Event()

    def building(self: Any, name: str) -> list[dict[str, Any]]:
        found = listed(self, name)
        return found if built.is_set() else [
            {**one, "state": "building", "covered": 0.25} for one in found
        ]  # fmt: skip

    monkeypatch.setattr(StoreCatalog, "list_indexes", building)
    console = open_console()
    page = console.page
    console.open("#/streams/steps")
    row = page.get_by_role("row").filter(has_text="varchar")
    row.get_by_role("button", name="Create index").click()
    row.get_by_text(re.compile("^25")).wait_for()
    row.get_by_role("button", name="Cancel the index on k").click()
    row.get_by_role("button", name="Cancel the index on k: sure?").click()
    row.get_by_role("button", name="Create index").wait_for()
    assert steps["steps"].indexes() == []
    console.open("#/admin")
    page.get_by_label("Stream", exact=True).select_option("steps")
    page.get_by_label("Attribute", exact=True).select_option("v")
    page.get_by_role("button", name="Create index").click()
    page.get_by_role("form", name="New index").get_by_text(re.compile("^25")).wait_for()
    assert page.get_by_role("button", name="Create index").is_disabled()
    built.set()
    page.get_by_role("table", name="Indexes").get_by_text("ready").wait_for()
    jobs = page.get_by_role("table", name="Jobs").get_by_role("row")
    jobs.filter(has_text="index steps · v").filter(has_text="done").wait_for()
    jobs.filter(has_text="index steps · k").filter(has_text="cancelled").wait_for()
