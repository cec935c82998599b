"""Wire formats: a folder per model API with ``read``, ``stream`` and ``write``; ``registry`` knows them all."""
