"""Wire traffic of official SDKs, recorded once; ``record.py`` makes it again."""
