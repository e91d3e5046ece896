"""The commands of ``chronicle``: one module a group, each a thin face over the library.

``options.py`` has what they share, ``place.py`` the store or server they talk to, ``screen.py``
what people see.  Modules of the database are imported inside the commands, so that ``--help``
stays quick.
"""
