"""What all settings of the gateway have in common."""

from pydantic import BaseModel, ConfigDict


class ConfigModel(BaseModel):
    """A part of the settings: frozen, nothing unknown in it, each field with its docstring."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )
