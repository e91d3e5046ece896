"""What a condition on events says to a scan.

Reading order: ``constants`` (folding), ``ranges`` (time and how it is shown), ``bounds``,
``predicates`` (from SQL), ``pushed_filters`` (from the executor's filters), ``exact_filters`` (to
Arrow's filters), ``row_truths`` (which rows satisfy one), ``key_values`` (when keys are equal).
"""
