/* What the wrappers of kernels share: arguments from Python, results to Python, memory. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Memory that a kernel allocates, as Numba's code counts and frees it. */
typedef struct {
    size_t references;
    void (*destructor)(void *, size_t, void *);
    void *destructor_info;
    void *data;
    size_t size;
    void *allocator;
} Memory;

HIDDEN void *NRT_MemInfo_alloc_aligned(size_t size, uint32_t align) {
    size_t head = (sizeof(Memory) + 63) / 64 * 64;
    void *all = NULL;
    if (posix_memalign(&all, align < 64 ? 64 : align, head + size)) return NULL;
    *(Memory *)all = (Memory){1, NULL, NULL, (char *)all + head, size, NULL};
    return all;
}

HIDDEN void *NRT_MemInfo_alloc_safe_aligned(size_t size, uint32_t align) {
    return NRT_MemInfo_alloc_aligned(size, align);
}

HIDDEN void *NRT_MemInfo_alloc(size_t size) { return NRT_MemInfo_alloc_aligned(size, 64); }
HIDDEN void NRT_MemInfo_call_dtor(void *memory) { free(memory); }
HIDDEN void *NRT_Allocate(size_t size) { return malloc(size); }
HIDDEN void NRT_Free(void *memory) { free(memory); }

/* The strides of a contiguous array in another shape; 0 for any other array. */
HIDDEN int numba_attempt_nocopy_reshape(
    int64_t dimensions, const int64_t *shape, const int64_t *strides, int64_t new_dimensions,
    const int64_t *new_shape, int64_t *new_strides, int64_t size, int fortran
) {
    int64_t step = size;
    for (int64_t i = dimensions - 1; i >= 0; step *= shape[i--])
        if (shape[i] != 1 && strides[i] != step) return 0;
    step = size;
    for (int64_t i = new_dimensions - 1; i >= 0; step *= new_shape[i--]) new_strides[i] = step;
    return !fortran;
}

static void free_memory(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, NULL)); }

/* Each of these says whether an argument fits its type, and leaves no exception. */

static int is_array(PyObject *given, int type, int dimensions, int flags) {
    PyArrayObject *array = (PyArrayObject *)given;
    return PyArray_Check(given) && PyArray_TYPE(array) == type
        && PyArray_NDIM(array) == dimensions && PyArray_CHKFLAGS(array, flags)
        && PyArray_ISNOTSWAPPED(array);
}

static int as_bool(PyObject *given, uint8_t *value) {
    if (!PyBool_Check(given) && !PyArray_IsScalar(given, Bool)) return 0;
    *value = PyObject_IsTrue(given) == 1;
    return 1;
}

static int as_double(PyObject *given, double *value) {
    if (!PyFloat_Check(given) && !PyLong_Check(given) && !PyArray_IsScalar(given, Number)) return 0;
    *value = PyFloat_AsDouble(given);
    if (*value != -1.0 || !PyErr_Occurred()) return 1;
    PyErr_Clear();
    return 0;
}

static int as_signed(PyObject *given, int64_t *value) {
    int overflow = 0;
    PyObject *number = PyLong_Check(given) ? Py_NewRef(given) : PyNumber_Index(given);
    if (number != NULL) {
        *value = PyLong_AsLongLongAndOverflow(number, &overflow);
        Py_DECREF(number);
        return !overflow;
    }
    PyErr_Clear();
    return 0;
}

static int as_unsigned(PyObject *given, uint64_t *value) {
    PyObject *number = PyLong_Check(given) ? Py_NewRef(given) : PyNumber_Index(given);
    if (number != NULL) {
        *value = PyLong_AsUnsignedLongLong(number);
        Py_DECREF(number);
    }
    if (!PyErr_Occurred()) return 1;
    PyErr_Clear();
    return 0;
}

/* The fields of a named tuple are read by their places: its class has those that it had. */
static int has_fields(PyObject *given, PyTypeObject **known, const char *fields) {
    if (Py_TYPE(given) == *known) return 1;
    PyObject *names = PyObject_GetAttrString(given, "_fields");
    PyObject *blank = PyUnicode_FromString(" ");
    PyObject *text = names == NULL ? NULL : PyUnicode_Join(blank, names);
    int same = PyTuple_CheckExact(given)
        || (text != NULL && PyUnicode_CompareWithASCIIString(text, fields) == 0);
    Py_XDECREF(names);
    Py_XDECREF(blank);
    Py_XDECREF(text);
    PyErr_Clear();
    if (same) *known = Py_TYPE(given);
    return same;
}

static PyObject *from_array(
    int dimensions, int type, void *memory, PyObject *parent, void *data, int64_t *shape, int64_t *strides
) {
    PyObject *array = PyArray_NewFromDescr(
        &PyArray_Type, PyArray_DescrFromType(type), dimensions, (npy_intp *)shape,
        (npy_intp *)strides, data, NPY_ARRAY_WRITEABLE, NULL
    );
    PyObject *owner = memory ? PyCapsule_New(memory, NULL, free_memory) : Py_XNewRef(parent);
    if (array != NULL && owner != NULL) PyArray_SetBaseObject((PyArrayObject *)array, owner);
    return array;
}

static PyObject *from_tuple(int size, ...) {
    va_list parts;
    PyObject *made = PyTuple_New(size);
    va_start(parts, size);
    for (int i = 0; i < size; i++) PyTuple_SET_ITEM(made, i, va_arg(parts, PyObject *));
    va_end(parts);
    if (!PyErr_Occurred()) return made;
    Py_DECREF(made);
    return NULL;
}

/* A kernel raises nothing itself: memory ran out, or an index is out of bounds in a build that looks. */
static PyObject *failed(const char *name, int status) {
    return PyErr_Format(
        PyExc_IndexError, "the kernel %s failed (%d): an index is out of bounds or memory ran out", name, status
    );
}

static void append(PyObject **text, PyObject *more) {
    PyObject *both = PyUnicode_Concat(*text, more);
    Py_DECREF(*text);
    Py_DECREF(more);
    *text = both;
}

/* An argument's type as forms.toml writes it. */
static PyObject *type_text(PyObject *given) {
    if (PyArray_Check(given)) {
        PyArrayObject *array = (PyArrayObject *)given;
        PyObject *type = PyObject_GetAttrString((PyObject *)PyArray_DESCR(array), "name");
        const char *one = PyArray_IS_C_CONTIGUOUS(array) ? ":" : "any";
        PyObject *text = PyUnicode_FromFormat(
            "%s%U[%s", PyArray_ISWRITEABLE(array) ? "" : "const ", type, PyArray_NDIM(array) ? one : ""
        );
        for (int i = 1; i < PyArray_NDIM(array); i++)
            append(&text, PyUnicode_FromFormat(", %s", one));
        append(&text, PyUnicode_FromString("]"));
        Py_DECREF(type);
        return text;
    }
    if (PyTuple_Check(given)) {
        PyObject *text = PyUnicode_FromFormat("%s(", PyTuple_CheckExact(given) ? "" : Py_TYPE(given)->tp_name);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
            if (i) append(&text, PyUnicode_FromString(", "));
            append(&text, type_text(PyTuple_GET_ITEM(given, i)));
        }
        append(&text, PyUnicode_FromString(")"));
        return text;
    }
    if (PyBool_Check(given) || PyArray_IsScalar(given, Bool)) return PyUnicode_FromString("bool");
    if (PyFloat_Check(given)) return PyUnicode_FromString("float64");
    if (PyLong_Check(given)) return PyUnicode_FromString("int64");
    return PyUnicode_FromString(strchr(Py_TYPE(given)->tp_name, '.') ? strchr(Py_TYPE(given)->tp_name, '.') + 1 : Py_TYPE(given)->tp_name);
}

static PyObject *types_of(PyObject *_, PyObject *const *arguments, Py_ssize_t count) {
    PyObject *text = PyUnicode_FromString("");
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i) append(&text, PyUnicode_FromString(", "));
        append(&text, type_text(arguments[i]));
    }
    return text;
}

static PyObject *no_form(const char *name, PyObject *const *arguments, Py_ssize_t count) {
    PyObject *text = types_of(NULL, arguments, count);
    PyErr_Format(
        PyExc_TypeError, "the kernel %s has no form for (%U): see kernel_build/forms.toml", name, text
    );
    Py_DECREF(text);
    return NULL;
}

static PyObject *make_module(struct PyModuleDef *definition, const char *digests[][2]) {
    import_array();
    PyObject *made = PyModule_Create(definition), *found = PyDict_New();
    for (int i = 0; digests[i][0] != NULL; i++) {
        PyObject *digest = PyUnicode_FromString(digests[i][1]);
        PyDict_SetItemString(found, digests[i][0], digest);
        Py_DECREF(digest);
    }
    PyModule_AddObject(made, "DIGESTS", found);
    return made;
}
