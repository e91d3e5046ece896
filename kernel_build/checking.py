"""Checks in kernels for what is undefined: memory that is not theirs, shifts, divisions, casts.

Purpose
    ``make test-sanitizers`` runs tests with kernels whose LLVM code calls ``checks.c`` before each
    access to memory, which asks AddressSanitizer's runtime library, and before each operation that
    LLVM leaves undefined for some operands, as UndefinedBehaviorSanitizer does.

Limits
    Clang's own passes are not in llvmlite, so this is done on the text of the code, before it is
    optimised: a shift by too much that is only speculated is none.  Accesses to a function's own
    variables are not checked: they have no index.  Nor are sums that overflow: kernels have them
    wrap.
"""

from __future__ import annotations

import re

__all__ = ["checked"]

_VALUE = r'(?:%"[^"]*"|@"[^"]*"|[%@][\w.$-]+|[-\w.]+)'
_ALLOCA = re.compile(rf"^ +({_VALUE}) = alloca ")
_LOAD = re.compile(rf"^ +{_VALUE} = load (?:volatile )?(.+), ptr ({_VALUE}), align (\d+)")
_STORE = re.compile(rf"^ +store (?:volatile )?(.+), ptr ({_VALUE}), align (\d+)")
_COPY = re.compile(
    rf"^ +(?:tail )?call void @llvm\.mem(?:cpy|move)[^(]*\(ptr (?:[a-z]+(?: \d+)? )*({_VALUE}), "
    rf"ptr (?:[a-z]+(?: \d+)? )*({_VALUE}), i64 ({_VALUE}),"
)
_FILL = re.compile(
    rf"^ +(?:tail )?call void @llvm\.memset[^(]*\(ptr (?:[a-z]+(?: \d+)? )*({_VALUE}), "
    rf"i8 {_VALUE}, i64 ({_VALUE}),"
)
_OPERATION = re.compile(
    rf"^ +{_VALUE} = (sdiv|srem|udiv|urem|shl|lshr|ashr)(?: [a-z]+)* i(\d+) "
    rf"({_VALUE}), ({_VALUE})(?:,|$)"
)
_CAST = re.compile(rf"^ +{_VALUE} = fpto([su])i (float|double) ({_VALUE}) to i(\d+)")

_DECLARED = """
declare void @chronicle_check_access(ptr, i64, i64, i32)
declare void @chronicle_check_divisor(i64, i64, i64, i32)
declare void @chronicle_check_shift(i64, i64)
declare void @chronicle_check_cast(double, i64, i32)
"""


def checked(text: str) -> str:
    """LLVM code with calls of checks."""
    lines: list[str] = []
    own: set[str] = set()
    for line in text.splitlines():
        if line.startswith("define "):
            own = set()
        elif (variable := _ALLOCA.match(line)) is not None:
            own.add(variable[1])
        elif line.startswith(" "):
            lines += [f"  {check}" for check in _checks(line, own, len(lines))]
        lines.append(line)
    return "\n".join(lines) + _DECLARED


def _checks(line: str, own: set[str], number: int) -> list[str]:
    """The calls before an instruction."""
    if (match := _LOAD.match(line)) is not None:
        return _access(match[2], _size(match[1]), match[3], 0, own)
    if (match := _STORE.match(line)) is not None:
        return _access(match[2], _size(_type_of(match[1])), match[3], 1, own)
    if (match := _COPY.match(line)) is not None:
        read = _access(match[2], match[3], "1", 0, own)
        return [*read, *_access(match[1], match[3], "1", 1, own)]
    if (match := _FILL.match(line)) is not None:
        return _access(match[1], match[2], "1", 1, own)
    if (match := _CAST.match(line)) is not None:
        wide, before = match[3], []
        if match[2] == "float":
            wide = f"%check.{number}"
            before = [f"{wide} = fpext float {match[3]} to double"]
        signed = int(match[1] == "s")
        return [
            *before,
            f"call void @chronicle_check_cast(double {wide}, i64 {match[4]}, i32 {signed})",
        ]
    if (match := _OPERATION.match(line)) is not None and int(match[2]) in (8, 16, 32, 64):
        return _operation(*match.groups(), number)
    return []


def _operation(name: str, bits: str, left: str, right: str, number: int) -> list[str]:
    before = []
    if bits != "64":
        extended = "sext" if name[0] == "s" and name != "shl" else "zext"
        before = [
            f"%check.{number}.{side} = {extended} i{bits} {value} to i64"
            for side, value in enumerate((left, right))
        ]
        left, right = f"%check.{number}.0", f"%check.{number}.1"
    if name in ("shl", "lshr", "ashr"):
        return [*before, f"call void @chronicle_check_shift(i64 {right}, i64 {bits})"]
    signed = int(name[0] == "s")
    return [
        *before,
        f"call void @chronicle_check_divisor(i64 {left}, i64 {right}, i64 {bits}, i32 {signed})",
    ]


def _access(pointer: str, size: str, alignment: str, write: int, own: set[str]) -> list[str]:
    if pointer in own or pointer.startswith("@") or pointer == "null":
        return []
    arguments = f"ptr {pointer}, i64 {size}, i64 {alignment}, i32 {write}"
    return [f"call void @chronicle_check_access({arguments})"]


def _size(type_: str) -> str:
    return f"ptrtoint (ptr getelementptr ({type_}, ptr null, i64 1) to i64)"


def _type_of(typed: str) -> str:
    """The type in front of a value."""
    if typed[0] not in "{[<":
        return typed.partition(" ")[0]
    depth = 0
    for place, character in enumerate(typed):
        depth += (character in "{[<") - (character in "}]>")
        if not depth:
            return typed[: place + 1]
    raise ValueError(f"no type in {typed!r}")
