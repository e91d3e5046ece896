"""The list of broken promises stays true to the sources; ``make mutants`` runs it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent


def _mutants() -> Any:
    spec = importlib.util.spec_from_file_location("chronicle_mutants", TESTS / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_mutant_can_be_made() -> None:
    mutants = _mutants().MUTANTS
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 20
    for mutant in mutants:
        text = (TESTS.parent / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.name}: {mutant.file} has changed"
        changed = text.replace(mutant.old, mutant.new)
        compile(changed, mutant.file, "exec")
        assert changed != text
        for name in mutant.tests.split():
            assert (TESTS / "store" / name).is_file(), f"{mutant.name}: no {name}"
