"""What every layer builds on: times and types, caches, threads and forks, kernels.

A module here imports :mod:`chronicle.errors` and its neighbours, nothing else of the package.

Reading order
    ``suggestion`` (hints for misspelt names), ``sql_text`` (quoted names and texts), ``times``
    (ticks, and times as people write them), ``zones`` (clocks of time zones),
    ``nested_types`` and ``json_text`` (types of lists and structs; text that is JSON),
    ``append_result``, ``options`` (declared once, for all interfaces),
    ``ownership`` (locks and forks), ``closing`` (of ``with`` blocks), ``caches``, ``threads``
    (tasks in threads, results in order),
    ``scratch`` (temporary directories), ``heap`` (freed memory), ``native`` (kernels, which are
    machine code), ``sorting``, ``pair_numbers`` and ``text_numbers`` (hash tables), ``identity``
    (names of results), ``soundness`` (Arrow data from outside), ``expression_text``.
"""
