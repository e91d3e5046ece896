"""Row pattern recognition (MATCH_RECOGNIZE, ISO/IEC 9075-2) and event selection.

A clause becomes a program and an automaton, conditions become bits or bytecode, kernels search.
Reading order: ``compiled`` (clause to operator), ``automaton``; ``binding`` (expressions),
``columns``, ``scalar`` (DuckDB), ``tabulated``, ``bytecode``, ``machine`` (stack machine),
``conditions``, ``buffers`` (conditions over rows); ``search``, ``matches``, ``attempts``
(suspension), ``jumping``, ``contiguous``, ``selection`` (searches); ``any_choice``, ``any_pairs``,
``any_states``, ``any_diagram``, ``any_output`` (SKIP TILL ANY MATCH); ``matcher`` (driver);
``measures``, ``results``, ``match_stream`` (output); ``retained``, ``advancing`` (incremental).
"""
