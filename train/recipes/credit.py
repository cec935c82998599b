"""Names the credits that a recipe learns from, rows of the table ``credits``."""

from pydantic import Field, model_validator

from lakehouse.credit.algorithms import algorithm_named
from lakehouse.credit.compute import parameters_text
from lakehouse.rewards import RewardWeights
from train.recipes.settings import RecipeSpec
from train.substrate.content import CreditSelection
from trajectory.documents.document import StrictModel
from trajectory.errors import ConfigurationError


class CreditSettings(StrictModel):
    """Step-level advantages, as ``headrace credit compute`` wrote them."""

    algorithm: str
    parameters: dict[str, float | int | str] = Field(default_factory=dict)
    """Those that are not the algorithm's defaults."""

    @model_validator(mode="after")
    def _known(self) -> "CreditSettings":
        try:
            algorithm_named(self.algorithm).settle(self.parameters)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    def selection(self, weights: RewardWeights) -> CreditSelection:
        """Return which rows of the table ``credits`` these are."""
        chosen = algorithm_named(self.algorithm)
        text = parameters_text(chosen, self.parameters)
        return CreditSelection(chosen.name, text, weights.weights_hash)


def credit_selection(spec: RecipeSpec, weights: RewardWeights) -> CreditSelection | None:
    """Return which credits a recipe asks for; None for most recipes."""
    given = spec.options.get("credit")
    return None if given is None else CreditSettings.model_validate(given).selection(weights)
