"""Plans and matches as SVG and HTML, for notebooks and pages without scripts: ``matches``.  The
console in ``web/src`` draws the same interactively.
"""
