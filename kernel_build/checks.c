/* What kernels of `make test-sanitizers` call before accesses to memory and operations that may be
   undefined; see checking.py.  A failure ends the process, as AddressSanitizer's do. */

#include <math.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK __attribute__((visibility("hidden"))) void

void __asan_loadN(uintptr_t address, size_t size);
void __asan_storeN(uintptr_t address, size_t size);

static void undefined(const char *what, int64_t left, int64_t right) {
    fprintf(stderr, "undefined: %s (%lld, %lld)\n", what, (long long)left, (long long)right);
    __sanitizer_print_stack_trace();
    abort();
}

CHECK chronicle_check_access(void *place, int64_t size, int64_t alignment, int write) {
    uintptr_t address = (uintptr_t)place;
    if (size == 0) return;
    if (size < 0) undefined("length below zero", size, 0);
    if (address % (uintptr_t)alignment) undefined("misaligned access", address, alignment);
    if (write) __asan_storeN(address, (size_t)size);
    else __asan_loadN(address, (size_t)size);
}

CHECK chronicle_check_divisor(int64_t value, int64_t divisor, int64_t bits, int is_signed) {
    if (divisor == 0) undefined("division by zero", value, divisor);
    if (is_signed && divisor == -1 && value == INT64_MIN >> (64 - bits))
        undefined("overflow of a division", value, divisor);
}

CHECK chronicle_check_shift(int64_t amount, int64_t bits) {
    if (amount < 0 || amount >= bits) undefined("shift", amount, bits);
}

CHECK chronicle_check_cast(double value, int64_t bits, int is_signed) {
    double whole = trunc(value), end = ldexp(1.0, (int)(is_signed ? bits - 1 : bits));
    if (!(whole < end && whole >= (is_signed ? -end : 0.0)))
        undefined("number beyond its integer type, bits below", bits, 0);
}
