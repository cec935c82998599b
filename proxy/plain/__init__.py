"""The plain listener: base-URL routes on llhttp and uvloop, without the layers of an intercepting proxy."""
