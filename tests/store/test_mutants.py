"""The list of broken promises stays true to the sources; ``make mutants`` runs it."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent


def _mutants() -> Any:
    spec = importlib.util.spec_from_file_location("chronicle_mutants", TESTS / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(TESTS))  # as for a script there
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(TESTS))
    return module


def test_every_mutant_can_be_made() -> None:
    module = _mutants()
    mutants = module.MUTANTS
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    assert min(Counter(mutant.below for mutant in mutants).values()) > 30
    for mutant in mutants:
        text = module.source_of(TESTS.parent, mutant).read_text(encoding="utf-8")
        changed = text.replace(mutant.old, mutant.new)
        compile(changed, mutant.file, "exec")
        assert changed != text
        for name in mutant.tests.split():
            file, _, test = name.partition("::")
            path = TESTS / mutant.below / file
            assert path.is_file(), f"{mutant.name}: no {file}"
            known = path.read_text(encoding="utf-8")
            assert not test or f"def {test}(" in known, f"{mutant.name}: no {test} in {file}"
