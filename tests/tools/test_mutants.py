"""The mutants fit the sources and the tests; ``make mutants`` runs them."""

from __future__ import annotations

from chronicle.tools.mutants.run import ROOT, load_mutants, source_of


def test_every_mutant_can_be_made() -> None:
    mutants = load_mutants()
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 400
    for mutant in mutants:
        source = source_of(ROOT, mutant)
        text = source.read_text(encoding="utf-8")
        changed = text.replace(mutant.old, mutant.new)
        if source.suffix == ".py":
            compile(changed, mutant.place, "exec")
        assert changed != text
        assert mutant.tests
        for name in mutant.tests:
            file, _, test = name.partition("::")
            path = ROOT / "tests" / file
            assert path.is_file(), f"{mutant.name}: no {file}"
            assert f"def {test.partition('[')[0]}(" in path.read_text("utf-8") or not test, (
                f"{mutant.name}: no {test} in {file}"
            )
