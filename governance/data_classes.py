"""Classes of personal data, from the entity types that redaction found."""

from collections.abc import Iterable

_CLASSES: dict[str, tuple[str, ...]] = {
    "identity": ("PERSON", "USERNAME", "DATE_OF_BIRTH", "AGE", "ORGANIZATION"),
    "contact": ("EMAIL_ADDRESS", "PHONE_NUMBER", "STREET_ADDRESS", "URL", "PERSONAL_URL"),
    "financial": ("CREDIT_CARD", "IBAN_CODE", "BANK_ACCOUNT", "US_BANK_NUMBER", "CRYPTO"),
    "government_id": (
        "NATIONAL_ID",
        "US_SSN",
        "US_ITIN",
        "US_PASSPORT",
        "US_DRIVER_LICENSE",
        "LICENSE_NUMBER",
        "VEHICLE_ID",
    ),
    "biometric": ("BIOMETRIC",),
    "health": ("UK_NHS", "MEDICAL_LICENSE", "MEDICAL_RECORD", "HEALTH_PLAN"),
    "network": ("IP_ADDRESS", "MAC_ADDRESS", "DEVICE_ID"),
    "location": ("LOCATION", "RESIDENCE", "POSTCODE", "ADDRESS"),
    "credential": (
        "API_KEY",
        "PASSWORD",
        "JWT",
        "PRIVATE_KEY",
        "CONNECTION_STRING",
        "URL_CREDENTIALS",
    ),
    "opaque": ("OPAQUE_DATA",),
}
DATA_CLASSES = (*_CLASSES, "personal")
"""All of them; ``personal`` is whatever belongs to no other."""
_CLASS_OF = {entity: name for name, entities in _CLASSES.items() for entity in entities}


def data_classes(entities: Iterable[str]) -> tuple[str, ...]:
    """Return the classes of these entity types, sorted; an unknown type counts as ``personal``."""
    return tuple(sorted({_CLASS_OF.get(entity, "personal") for entity in entities}))
