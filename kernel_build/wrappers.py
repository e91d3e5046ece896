"""C text of the functions that Python calls: unpack arguments, call a kernel, pack its result.

Numba's convention: a function returns a status and takes pointers for result and exception, then
flat arguments.  An array is passed as meminfo (NULL here), parent object, number of elements, item
size, address, shape and strides; a tuple as its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba.core import types

if TYPE_CHECKING:
    from .compiling import Form


_C = {
    "bool": "uint8_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def wrapper(symbol: str, signature: Any) -> str:
    """The function ``call_<symbol>``, which returns 0 if the arguments do not fit this form."""
    arguments = _Arguments()
    for number, type_ in enumerate(signature.args):
        arguments.add(type_, f"arguments[{number}]")
    parameters = "".join(f", {type_}" for type_ in arguments.parameters)
    values = "".join(f", {value}" for value in arguments.values)
    checks = "".join(f"    {check}\n" for check in arguments.checks)
    return (
        f"extern int32_t {symbol}(void *, void **{parameters});\n"
        f"static int call_{symbol}(const char *name, PyObject *const *arguments, Py_ssize_t count, "
        f"PyObject **result) {{\n    if (count != {len(signature.args)}) return 0;\n{checks}"
        f"    {_c_type(signature.return_type)} found;\n    void *exception;\n    int32_t status;\n"
        "    memset(&found, 0, sizeof found);\n    Py_BEGIN_ALLOW_THREADS\n"
        f"    status = {symbol}(&found, &exception{values});\n    Py_END_ALLOW_THREADS\n"
        "    *result = status == 0 || status == -2 ? "
        f"{_packed(signature.return_type, 'found')} : failed(name, status);\n    return 1;\n}}\n"
    )


def extension(module: str, kernels: dict[str, list[Form]], digests: dict[str, str]) -> str:
    functions, methods = [], []
    for name, forms in kernels.items():
        plain = name.replace(".", "_")
        calls = "".join(
            f'    if (call_{form.symbol}("{name}", arguments, count, &result)) return result;\n'
            for form in forms
        )
        functions += [form.wrapper for form in forms]
        functions.append(
            f"static PyObject *{plain}(PyObject *_, PyObject *const *arguments, Py_ssize_t count) "
            f"{{\n    PyObject *result;\n{calls}"
            f'    return no_form("{name}", arguments, count);\n}}\n'
        )
        methods.append(f'    {{"{plain}", (PyCFunction)(void *){plain}, METH_FASTCALL, NULL}},\n')
    methods.append('    {"types_of", (PyCFunction)(void *)types_of, METH_FASTCALL, NULL},\n')
    table = "".join(f'    {{"{name}", "{digest}"}},\n' for name, digest in digests.items())
    return (
        '#include "runtime.c"\n\n'
        + "\n".join(functions)
        + f"\nstatic PyMethodDef methods[] = {{\n{''.join(methods)}    {{NULL}}\n}};\n"
        f"static const char *digests[][2] = {{\n{table}    {{NULL, NULL}}\n}};\n"
        "static struct PyModuleDef definition = "
        f'{{PyModuleDef_HEAD_INIT, "{module}", NULL, -1, methods}};\n'
        f"PyMODINIT_FUNC PyInit_{module}(void) {{ return make_module(&definition, digests); }}\n"
    )


def _c_type(type_: Any) -> str:
    type_ = types.unliteral(type_)
    if isinstance(type_, types.Array):
        sizes = f"int64_t shape[{max(type_.ndim, 1)}], strides[{max(type_.ndim, 1)}];"
        head = "void *memory; PyObject *parent; int64_t count, size; void *data;"
        return f"struct {{ {head} {sizes} }}"
    if isinstance(type_, types.BaseTuple):
        return f"struct {{ {' '.join(f'{_c_type(part)} f{i};' for i, part in enumerate(type_))} }}"
    return "void *" if isinstance(type_, types.NoneType) else _C[str(type_)]


def _packed(type_: Any, value: str) -> str:
    type_ = types.unliteral(type_)
    if isinstance(type_, types.Array):
        parts = ("memory", "parent", "data", "shape", "strides")
        fields = ", ".join(f"{value}.{part}" for part in parts)
        return f"from_array({type_.ndim}, NPY_{str(type_.dtype).upper()}, {fields})"
    if isinstance(type_, types.BaseTuple):
        fields = "".join(f", {_packed(part, f'{value}.f{i}')}" for i, part in enumerate(type_))
        return f"from_tuple({len(type_)}{fields})"
    if isinstance(type_, types.NoneType):
        return "Py_NewRef(Py_None)"
    if isinstance(type_, types.Boolean):
        return f"PyBool_FromLong({value})"
    if isinstance(type_, types.Float):
        return f"PyFloat_FromDouble({value})"
    return f"PyLong_From{'' if type_.signed else 'Unsigned'}LongLong({value})"


class _Arguments:
    def __init__(self) -> None:
        self.checks: list[str] = []
        self.parameters: list[str] = []
        self.values: list[str] = []

    def add(self, type_: Any, argument: str) -> None:
        type_ = types.unliteral(type_)
        name = f"v{len(self.checks)}"
        if isinstance(type_, types.Array):
            self._add_array(type_, argument, name)
        elif isinstance(type_, types.BaseTuple):
            self.checks.append(
                f"PyObject *{name} = {argument}; if (!PyTuple_Check({name}) "
                f"|| PyTuple_GET_SIZE({name}) != {len(type_)}) return 0;"
            )
            fields = " ".join(getattr(type_, "fields", ()))
            if fields:
                self.checks.append(
                    f"static PyTypeObject *type_{name}; "
                    f'if (!has_fields({name}, &type_{name}, "{fields}")) return 0;'
                )
            for number, part in enumerate(type_):
                self.add(part, f"PyTuple_GET_ITEM({name}, {number})")
        else:
            kind, as_ = "int64_t", "as_signed"
            if isinstance(type_, types.Boolean):
                kind, as_ = "uint8_t", "as_bool"
            elif isinstance(type_, types.Float):
                kind, as_ = "double", "as_double"
            elif not type_.signed:
                kind, as_ = "uint64_t", "as_unsigned"
            self.checks.append(f"{kind} {name}; if (!{as_}({argument}, &{name})) return 0;")
            self.parameters.append(_C[str(type_)])
            self.values.append(f"({_C[str(type_)]}){name}")

    def _add_array(self, type_: Any, argument: str, name: str) -> None:
        flags = ["NPY_ARRAY_ALIGNED"]
        flags += ["NPY_ARRAY_C_CONTIGUOUS"] if type_.layout == "C" else []
        flags += ["NPY_ARRAY_WRITEABLE"] if type_.mutable else []
        kind = f"NPY_{str(type_.dtype).upper()}"
        self.checks.append(
            f"if (!is_array({argument}, {kind}, {type_.ndim}, {' | '.join(flags)})) return 0; "
            f"PyArrayObject *{name} = (PyArrayObject *){argument};"
        )
        sizes = ["int64_t"] * (2 * type_.ndim)
        self.parameters += ["void *", "void *", "int64_t", "int64_t", "void *", *sizes]
        self.values += ["NULL", name, f"PyArray_SIZE({name})", f"PyArray_ITEMSIZE({name})"]
        self.values.append(f"PyArray_DATA({name})")
        for what in ("DIM", "STRIDE"):
            self.values += [f"PyArray_{what}({name}, {i})" for i in range(type_.ndim)]
