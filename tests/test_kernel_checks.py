"""What ``make test-sanitizers`` writes into the LLVM code of kernels."""

from __future__ import annotations

import re

import pytest

from chronicle.kernel_build.checking import checked

llvm = pytest.importorskip("llvmlite.binding")

KERNEL = """
define i64 @kernel(ptr %values, i64 %i, i32 %shift, double %x, float %y) {
entry:
  %own = alloca i64, align 8
  store i64 0, ptr %own, align 8
  %"a place" = getelementptr double, ptr %values, i64 %i
  %value = load double, ptr %"a place", align 8
  store { i64, [2 x i8] } zeroinitializer, ptr %values, align 8
  %quotient = sdiv i64 %i, 3
  %rest = urem i64 %i, %quotient
  %bits = shl i32 7, %shift
  %sum = add nsw i64 %rest, %quotient
  %whole = fptosi double %x to i32
  %unsigned = fptoui float %y to i64
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %values, ptr %own, i64 8, i1 false)
  ret i64 %sum
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def test_each_access_and_each_operation_that_may_be_undefined_is_checked() -> None:
    text = checked(KERNEL)
    llvm.parse_assembly(text).verify()
    found = re.findall(r"call void @chronicle_check_(\w+)\((.*)\)$", text, re.M)
    size = "i64 ptrtoint (ptr getelementptr ({}, ptr null, i64 1) to i64)"
    assert found == [
        ("access", f'ptr %"a place", {size.format("double")}, i64 8, i32 0'),
        ("access", f"ptr %values, {size.format('{ i64, [2 x i8] }')}, i64 8, i32 1"),
        ("divisor", "i64 %i, i64 3, i64 64, i32 1"),
        ("divisor", "i64 %i, i64 %quotient, i64 64, i32 0"),
        ("shift", f"i64 {_made('zext i32 %shift', text)}, i64 32"),
        ("cast", "double %x, i64 32, i32 1"),
        ("cast", f"double {_made('fpext float %y', text)}, i64 64, i32 0"),
        ("access", "ptr %values, i64 8, i64 1, i32 1"),
    ]


def _made(how: str, text: str) -> str:
    """The name of an operand that was made as wide as the check takes it."""
    return str(re.findall(rf"(%check\S+) = {how} to ", text)[0])
