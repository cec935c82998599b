"""Inspection of artefacts: what one says, compared with what it was drawn from, before anybody sees it."""
