"""The pages of the console, in the order of the navigation: a module for each of them, or for a few alike."""

from headrace.console.page import Page
from headrace.console.pages import (
    account,
    evolution,
    home,
    models,
    policy,
    privacy,
    registries,
    review,
    sql,
    trajectories,
)

PAGES: tuple[Page, ...] = (
    *home.PAGES,
    *trajectories.PAGES,
    *review.PAGES,
    *policy.PAGES,
    *privacy.PAGES,
    *models.PAGES,
    *evolution.PAGES,
    *registries.PAGES,
    *sql.PAGES,
    *account.PAGES,
)
"""Each page that there is; what is not listed here has no route."""
