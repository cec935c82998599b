"""Ways in and out: documents of other formats to and from :class:`Trajectory`.

Each module has ``import_document`` and ``export_document``; an imported document exports as the
identical document, whatever it held that the protocol has no field for.
"""
