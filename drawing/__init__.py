"""Pictures of plans and matches as SVG and HTML, for notebooks and pages without scripts.

Reading order: ``axis`` (time and colours), ``history`` (what of a stream a query touched),
``plans`` (a plan with its history maps), ``matches`` (a lane for each match).

The web console draws the same, with a pointer to zoom and choose, in ``web/src``.
"""
