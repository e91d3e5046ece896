"""Validation and defaults of a live query's options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ..core.suggestion import did_you_mean
from ..core.times import iso_text, moved
from ..errors import ChronicleError, InvalidArgument
from ..query.contract.catalog import Given, LiveRequest
from ..query.sql.dialect import error_at
from ..store.options import StreamOptions
from ..store.stream import EventStream
from .analysis import Analysed
from .definition import LiveDefinition
from .delivery import check_webhook
from .sources import ahead_seconds, combined_watermark

SETTINGS = ("retention", "durability")
LIMITS = ("lag_events_max", "state_bytes_max", "on_truncate", "store")
OPTIONS = (*SETTINGS, *LIMITS, "webhook", "webhook_secret")
"""Options of WITH: settings of the sink, limits, and the webhook."""
TRUNCATIONS = ("refresh", "stop")

IDLE_MS = 1000.0
_NS_PER_MS = 1_000_000


def defined(
    request: LiveRequest, analysed: Analysed, sources: Sequence[EventStream]
) -> LiveDefinition:
    """The definition for a request.

    Raises SqlError (with position) or InvalidArgument for an option that does not fit.
    """
    name, source = request.name, sources[0]
    if not analysed.form.corrects and request.late == "correct":
        raise _wrong(
            request, None, "windows of so many events shift with every late event, which cannot be "
            "corrected: say LATE IGNORE"
        )  # fmt: skip
    if not analysed.form.corrects and not _stored(request):
        raise _wrong(
            request, request.options["store"], "windows of so many events are counted on from "
            "those that are stored: leave store = false out"
        )  # fmt: skip
    if not analysed.form.corrects and source.options.retention is not None:
        raise _wrong(
            request, None, f"windows of so many events are counted from the first, which the "
            f"retention of {source.name} will drop: use windows in time"
        )  # fmt: skip
    every = _wall(request, request.every, "EMIT ON CHANGE EVERY")
    if every is not None and not analysed.form.emits_changes:
        raise _wrong(
            request, request.every, "EMIT ON CHANGE is for windows and sessions: other results are "
            "known at once"
        )  # fmt: skip
    limits = _limits(request)
    delay = _ticks(request, request.delay, source, "DELAY")
    webhook, secret = _webhook(request)
    sink = request.into or name
    return LiveDefinition(
        name,
        request.sql,
        analysed.form.streams,
        sink,
        shared=request.into is not None,
        start=_start(request, sources, delay or 0),
        delay=delay or 0,
        idle_ms=_idle(request),
        correct=request.late == "correct",
        correct_for=_ticks(request, request.correct_for, source, "LATE CORRECT FOR"),
        every_ms=every,
        options=_options(request),
        **limits,
        webhook=webhook,
        webhook_secret=secret,
        columns=tuple(field.name for field in analysed.fields),
    )


def _wrong(request: LiveRequest, given: Given | None, what: str) -> ChronicleError:
    at = request.at if given is None else given.at
    return error_at(request.text, at, what) if at is not None else InvalidArgument(what)


def _ticks(request: LiveRequest, given: Given | None, source: EventStream, of: str) -> int | None:
    if given is None:
        return None
    per_second = source.schema.ticks_per_second
    if per_second is None:
        if not isinstance(given.value, int):
            raise _wrong(
                request,
                given,
                f"{of} takes an integer, as the times of {source.name} are",
            )
        ticks = given.value
    else:
        if given.nanoseconds is None:
            raise _wrong(request, given, f"{of} takes an interval such as INTERVAL '5' MINUTE")
        ticks, rest = divmod(given.nanoseconds * per_second, 1_000_000_000)
        if rest:
            shown = iso_text(pa.array([given.nanoseconds // 1000], pa.duration("us")))[0].as_py()
            raise _wrong(
                request, given, f"{of} {shown} is finer than the times of {source.name}, which are "
                f"in {source.schema.time_unit}"
            )  # fmt: skip
    if ticks < 0:
        raise _wrong(request, given, f"{of} takes a length that is not negative")
    return int(ticks)


def _wall(request: LiveRequest, given: Given | None, of: str) -> float | None:
    if given is None:
        return None
    if given.nanoseconds is None or given.nanoseconds < 0:
        raise _wrong(request, given, f"{of} takes an interval such as INTERVAL '1' SECOND")
    return given.nanoseconds / _NS_PER_MS


def _idle(request: LiveRequest) -> float | None:
    if request.idle is None:
        return IDLE_MS
    if isinstance(request.idle, str):
        return None
    return _wall(request, request.idle, "IDLE AFTER")


def _start(request: LiveRequest, sources: Sequence[EventStream], delay: int) -> int | None:
    if request.start == "first":
        return None
    snapshots = [source.snapshot() for source in sources]
    if request.start == "now":
        watermark = combined_watermark([(one, False) for one in snapshots], delay, ahead_seconds())
        return None if watermark is None else moved(watermark, 1)
    assert isinstance(request.start, Given)
    try:
        start = sources[0].schema.to_ticks(request.start.value)
    except ChronicleError as error:
        raise _wrong(
            request, request.start, f"START AT takes FIRST, NOW or a time: {error}"
        ) from None
    for source, snapshot in zip(sources, snapshots, strict=True):
        span = snapshot.time_range
        if span is not None and snapshot.state.dropped and start < span[0]:
            raise _wrong(
                request, request.start, f"{source.name} holds events from "
                f"{source.schema.from_ticks(span[0])} on, the earlier ones were dropped by "
                "retention: start there, or later"
            )  # fmt: skip
    return int(start)


def _options(request: LiveRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name, option in request.options.items():
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS, quoted=False)
            raise _wrong(
                request, option, f"no option {name!r}{hint} (there are {', '.join(OPTIONS)})"
            )
        if name not in SETTINGS:
            continue
        if not _stored(request):
            raise _wrong(request, option, "nothing is stored that could have settings")
        if request.into is not None:
            raise _wrong(request, option, "a sink that is shared has its own settings")
        chosen[name] = option.value
    try:
        StreamOptions(**chosen)
    except ChronicleError as error:
        raise _wrong(request, next(iter(request.options.values()), None), str(error)) from None
    return chosen


def _limits(request: LiveRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name in ("lag_events_max", "state_bytes_max"):
        option = request.options.get(name)
        if option is None:
            continue
        if isinstance(option.value, bool) or not isinstance(option.value, int) or option.value < 0:
            raise _wrong(request, option, f"{name} is a number, 0 or more, found {option.value!r}")
        chosen[name] = option.value
    option = request.options.get("on_truncate")
    if option is not None:
        if option.value not in TRUNCATIONS:
            raise _wrong(
                request, option, f"on_truncate is 'refresh' or 'stop', found {option.value!r}"
            )
        chosen["on_truncate"] = option.value
    if not _stored(request):
        chosen["store"] = False
        for what, wrong in (
            ("INTO", request.into), ("EMIT ON CHANGE", request.every),
            ("a webhook", request.options.get("webhook")),
            ("a time to start at", request.start if isinstance(request.start, Given) else None),
        ):  # fmt: skip
            if wrong is not None:
                at = wrong if isinstance(wrong, Given) else request.options["store"]
                raise _wrong(
                    request, at, f"{what} needs results that are stored: leave store = false out"
                )
    return chosen


def _stored(request: LiveRequest) -> bool:
    option = request.options.get("store")
    if option is None:
        return True
    text = str(option.value).lower()
    if text not in ("true", "false"):
        raise _wrong(request, option, f"store is true or false, found {option.value!r}")
    return text == "true"


def _webhook(request: LiveRequest) -> tuple[str | None, str | None]:
    url, secret = request.options.get("webhook"), request.options.get("webhook_secret")
    if url is None and secret is None:
        return None, None
    try:
        secret_text = None if secret is None else str(secret.value)
        webhook = check_webhook("" if url is None else str(url.value), secret_text)
    except InvalidArgument as error:
        raise _wrong(request, url or secret, str(error)) from None
    return webhook.url, webhook.secret
