"""Pins in files ``<stream>/pins/<position>-<random>.pin``, for followers that stop and resume.

The file has JSON: manifest, checkpoint, lease, expiry.  A stored pin can be opened, and its files
stay, until it expires (``KEPT_SECONDS`` after it was made or renewed) or is dropped, or replaced
files exceed the option ``kept_bytes_max``: the writer then drops the oldest pins.  Every follower
makes its own, so nobody drops another's, and needs write access to the stream's directory.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ..errors import CorruptStore, SnapshotExpired
from .file_contract import Files, replace_file
from .lock import Lease, ReaderLease
from .pins import Pin, below_of, pin_stream

PINS = "pins"
SUFFIX = ".pin"
KEPT_SECONDS = 7 * 24 * 3600.0


def keep_pin(
    files: Files,
    directory: str,
    *,
    position: int | None = None,
    seconds: float = KEPT_SECONDS,
    clock: Callable[[], float] = time.time,
    suffix: str | None = None,
) -> str:
    """Pin a stream in a file; returns the pin's name."""
    pin = pin_stream(files, directory, position=position, ttl_seconds=seconds)
    name = f"{pin.position}-{suffix or secrets.token_hex(8)}"
    files.make_directory(f"{directory}/{PINS}")
    _write(files, name, pin, clock() + seconds)
    return name


def _path(directory: str, name: str) -> str:
    return f"{directory}/{PINS}/{name}{SUFFIX}"


def _write(files: Files, name: str, pin: Pin, ends: float) -> None:
    document = {
        "manifest": pin.manifest,
        "checkpoint": base64.b64encode(pin.checkpoint).decode("ascii"),
        "position": pin.position,
        "lease": pin.lease,
        "ends": ends,
    }
    path = _path(pin.directory, name)
    replace_file(files, path, json.dumps(document, separators=(",", ":")).encode())


def _read(files: Files, directory: str, name: str) -> tuple[Pin, float]:
    try:
        document = json.loads(files.read(_path(directory, name)))
        pin = Pin(
            directory,
            document["manifest"],
            base64.b64decode(document["checkpoint"]),
            document["position"],
            document["lease"],
        )
        return pin, document["ends"]
    except FileNotFoundError:
        raise SnapshotExpired(
            f"the position {name} of a follower is no longer kept (unused for too long, or "
            "dropped): follow the stream anew, with a new checkpoint"
        ) from None
    except (ValueError, KeyError) as error:
        raise CorruptStore(
            f"{_path(directory, name)} is damaged ({error}); follow the stream anew"
        ) from None


def load_pin(files: Files, directory: str, name: str) -> Pin:
    return _read(files, directory, name)[0]


def renew_pin(
    files: Files,
    directory: str,
    name: str,
    *,
    seconds: float = KEPT_SECONDS,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Extend a pin when more than half of its time is over; returns whether it did."""
    pin, ends = _read(files, directory, name)
    if ends - clock() > seconds / 2:
        return False
    version = int(pin.manifest["version"])
    below = below_of(pin)
    lease = ReaderLease.take(
        files, directory, version, ttl_seconds=seconds, below=below, clock=clock
    )
    path = lease.path
    lease.detach()
    _write(files, name, replace(pin, lease=path), clock() + seconds)
    _remove_lease(files, pin)
    return True


def _remove_lease(files: Files, pin: Pin) -> None:
    if pin.lease is not None:
        with suppress(OSError):
            files.remove(pin.lease)


def drop_pin(files: Files, directory: str, name: str) -> None:
    with suppress(SnapshotExpired, CorruptStore):
        _remove_lease(files, load_pin(files, directory, name))
    with suppress(FileNotFoundError):
        files.remove(_path(directory, name))


def stored_pins(files: Files, directory: str) -> list[str]:
    """Names of a stream's pins, including expired ones that were not swept yet."""
    try:
        names = files.list(f"{directory}/{PINS}")
    except FileNotFoundError:
        return []
    return [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]


def stored_leases(files: Files, directory: str) -> list[tuple[Lease, str]]:
    """Lease and name of each readable pin; oldest version first."""
    found = []
    for name in stored_pins(files, directory):
        with suppress(SnapshotExpired, CorruptStore):
            pin = load_pin(files, directory, name)
            found.append((Lease(int(pin.manifest["version"]), below_of(pin)), name))
    return sorted(found, key=lambda kept: kept[0].version)


def sweep_pins(
    files: Files, directory: str, *, clock: Callable[[], float] = time.time
) -> list[str]:
    swept = []
    for name in stored_pins(files, directory):
        try:
            ends = _read(files, directory, name)[1]
        except (SnapshotExpired, CorruptStore):
            ends = 0.0
        if ends < clock():
            drop_pin(files, directory, name)
            swept.append(name)
    return swept
