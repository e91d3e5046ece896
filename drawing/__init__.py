"""Plans and matches as SVG and HTML, for notebooks and pages without scripts.  The
console in ``web/src`` draws the same interactively.  Reading order: ``matches``.
"""
