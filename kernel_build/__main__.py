"""``python -m kernel_build DIRECTORY``: compile the kernels of this tree into an extension module.

``setup.py`` and ``make kernels`` run it.  It imports the modules with kernels under Numba, compiles
the forms of ``forms.toml`` in one process per CPU, and links them with the system's C compiler, or
``ziglang``.  ``_kernels.<abi>.so`` runs on every processor of its architecture, ``_kernels_v3`` on
x86-64 with AVX2.  ``.build/kernels`` caches objects, so that only changes are recompiled.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent
LEVELS = {"_kernels": "x86-64-v2", "_kernels_v3": "x86-64-v3"}
"""Modules of x86-64 and their CPU levels; other architectures have only the first."""

CHECKS = ("bounds", "sanitizers")
"""What kernels can look at before they do it, for tests."""

FOLDERS = ("core", "store", "indexes", "query", "live", "formats")
PROGRESS_EVERY = 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="kernel_build", description="compile the kernels")
    parser.add_argument("directory", type=Path, help="where the extension module goes")
    parser.add_argument("--modules", nargs="+", choices=LEVELS, help="default: this machine's")
    parser.add_argument("--checks", choices=CHECKS, default="", help="of each index, or of memory")
    parser.add_argument("--if-changed", action="store_true", help="unless all are as compiled")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        check()
    elif options.part is not None:
        compile_part(options.part, options.checks)
    elif not (options.if_changed and is_current(options.directory)):
        for module in options.modules or [importlib.import_module("core.native").of_this_machine()]:
            build(options.directory, module, options.checks)


def is_current(directory: Path) -> bool:
    """Whether the compiled kernels match the tree, checked in another process."""
    modules = list(directory.glob("_kernels*"))
    newest = max(file.stat().st_mtime for file in Path(__file__).parent.glob("*.*"))
    if not modules or min(file.stat().st_mtime for file in modules) < newest:
        return False
    command = [sys.executable, "-m", "kernel_build", str(directory), "--check"]
    return subprocess.run(command, cwd=SOURCE, stderr=subprocess.DEVNULL).returncode == 0


def check() -> None:
    """Fail if a kernel, or a named tuple that one takes, has changed since the build."""
    native = import_kernels(None)
    if native.load().DIGESTS["forms.toml"] != digest_of_forms():
        raise SystemExit("kernel_build: arguments have changed")


def digest_of_forms() -> str:
    """Digest of all forms and the fields of their named tuples; call ``import_kernels`` first."""
    from .forms import fields_of, read_form

    digest = hashlib.blake2b()
    for name, texts in forms_of(Path(__file__).parent / "forms.toml").items():
        for text in texts:
            types = read_form(text, f"chronicle.{name.rpartition('.')[0]}")
            digest.update(repr((name, text, fields_of(types))).encode())
    return digest.hexdigest()[:16]


def build(directory: Path, module: str, checks: str = "") -> None:
    """Compile and link one extension module."""
    level = LEVELS[module] if platform.machine() == "x86_64" else "generic"
    os.environ.update(NUMBA_CPU_NAME=level, NUMBA_CPU_FEATURES="")
    if checks == "sanitizers":
        os.environ["NUMBA_OPT"] = "0"
    print(f"compiling Chronicle's kernels for {level}", file=sys.stderr, flush=True)
    for claim in objects(checks).glob("*.claim"):
        claim.unlink()
    command = [sys.executable, "-m", "kernel_build", str(directory)]
    command += ["--checks", checks] if checks else []
    others = [
        subprocess.Popen([*command, "--part", str(part)], cwd=SOURCE)
        for part in range(1, os.cpu_count() or 1)
    ]
    compiler, kernels = compile_part(0, checks)
    if [each for each in others if each.wait()]:
        raise SystemExit("kernel_build: a process that compiles has failed; see above")
    from .wrappers import extension

    forms = {
        name: [compiler.compile(kernel, text) for text in texts]
        for name, (kernel, texts) in kernels.items()
    }
    digests = {name: compiler.digest(kernel) for name, kernel in compiler.kernels.items()}
    digests["forms.toml"] = digest_of_forms()
    source = objects(checks) / f"{module}.c"
    source.write_text(extension(module, forms, digests))
    files = [form.object for each in forms.values() for form in each]
    link(directory, module, source, files, checked=checks == "sanitizers")


def objects(checks: str) -> Path:
    """Where objects are kept."""
    folder = SOURCE / ".build" / f"kernels{checks and '_'}{checks}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compile_part(part: int, checks: str) -> tuple[Any, dict[str, tuple[Any, list[str]]]]:
    """Compile what no other process compiles, from the beginning or from the end."""
    from .compiling import Compiler

    compiler = Compiler(objects(checks), checks)
    import_kernels(compiler)
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # Numba makes many objects and few cycles
    texts = forms_of(Path(__file__).parent / "forms.toml")
    missing = sorted(texts.keys() - compiler.kernels.keys())
    if missing:
        raise SystemExit(f"kernel_build/forms.toml: there is no kernel {', '.join(missing)}")
    kernels = {name: (compiler.kernels[name], texts[name]) for name in texts}
    work = [(name, kernel, text) for name, (kernel, forms) in kernels.items() for text in forms]
    for number, (name, kernel, text) in enumerate(work[::-1] if part % 2 else work):
        if part == 0 and number % PROGRESS_EVERY == 0:
            print(f"  {number} of {len(work)} forms", file=sys.stderr, flush=True)
        try:
            compiler.compile(kernel, text)
        except Exception as error:
            raise SystemExit(f"kernel_build: {name} ({text}): {error}") from error
    return compiler, kernels


def import_kernels(compiler: Any) -> Any:
    """Import the modules with kernels, compiled or as Numba's forms; returns ``native``."""
    with tempfile.TemporaryDirectory() as names:  # the tree is the package, under any name
        os.symlink(SOURCE, Path(names) / "chronicle")
        sys.path.insert(0, names)
        native = importlib.import_module("chronicle.core.native")
        native.compiler = compiler
        if compiler is not None:
            from numba.cpython.unsafe import numbers

            native.leading_zeros = numbers.leading_zeros
            native.trailing_zeros = numbers.trailing_zeros
        for path in sorted(file for folder in FOLDERS for file in SOURCE.glob(f"{folder}/**/*.py")):
            if "\n@kernel\n" in path.read_text():
                place = path.relative_to(SOURCE).with_suffix("")
                importlib.import_module(".".join(("chronicle", *place.parts)))
    return native


def forms_of(path: Path) -> dict[str, list[str]]:
    """The forms of each kernel, with ``T`` replaced by each of its types."""
    with path.open("rb") as file:
        modules = tomllib.load(file)
    forms_by_name = {}
    for module, kernels in modules.items():
        for name, entry in kernels.items():
            forms = entry
            if isinstance(entry, dict):
                forms = [re.sub(r"\bT\b", each, entry["form"]) for each in entry["T"]]
            forms_by_name[f"{module}.{name}"] = forms
    return forms_by_name


def link(
    directory: Path, module: str, source: Path, files: list[Path], *, checked: bool = False
) -> None:
    """Make the extension module of C text and objects, and see that it can be imported."""
    import numpy

    target = directory / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"
    part = source.with_name(target.name)
    listed = source.with_suffix(".files")
    listed.write_text("\n".join(str(file) for file in dict.fromkeys(files)))
    includes = (Path(__file__).parent, sysconfig.get_paths()["include"], numpy.get_include())
    flags = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
    sources = [str(source)]
    if checked:
        flags += ["-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"]
        sources.append(str(Path(__file__).parent / "checks.c"))
    else:
        flags.append("-s")
    command = [*c_compiler(), *flags, *(f"-I{include}" for include in includes)]
    subprocess.run([*command, *sources, f"@{listed}", "-lm", "-o", str(part)], check=True)
    look = f"import importlib.util as u; s = u.spec_from_file_location({module!r}, {str(part)!r})"
    if not checked:  # else it needs the sanitizers' library, which the tests load first
        subprocess.run([sys.executable, "-c", f"{look}; u.module_from_spec(s)"], check=True)
    shutil.move(part, target)


def c_compiler() -> list[str]:
    configured = os.environ.get("CC", "").split()
    command = configured or [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]
    if not command and importlib.util.find_spec("ziglang"):
        command = [sys.executable, "-m", "ziglang", "cc"]
    if not command:
        raise SystemExit("kernel_build: no C compiler: install one, or `pip install ziglang`")
    return command


if __name__ == "__main__":
    main()
