"""Plans and matches as SVG and HTML, for notebooks and pages without scripts.

Reading order: ``axis`` (time and colours), ``history`` (regions that a query touched; plans as
HTML), ``matches`` (a lane for each match).  The console in ``web/src`` draws the same
interactively.
"""
