"""Data classes: every entity that is redacted by default has one of its own."""

from governance.data_classes import data_classes
from governance.policy.redaction import DEFAULT_ENTITIES


def test_every_default_entity_is_classified() -> None:
    assert [name for name in DEFAULT_ENTITIES if data_classes([name]) == ("personal",)] == []


def test_unknown_entities_count_as_personal() -> None:
    assert data_classes(["EMAIL_ADDRESS", "SHOE_SIZE", "PHONE_NUMBER"]) == ("contact", "personal")
    assert data_classes([]) == ()
