"""The pages of the console, in the order of the navigation: a module for each of them, or for a few alike."""

from headrace.console.page import Page
from headrace.console.pages import (
    account,
    approvals,
    artifacts,
    evolution,
    home,
    lineage,
    models,
    policy,
    privacy,
    progress,
    registries,
    requests,
    review,
    runs,
    sql,
    trajectories,
    trials,
)

PAGES: tuple[Page, ...] = (
    *home.PAGES,
    *trajectories.PAGES,
    *review.PAGES,
    *approvals.PAGES,
    *policy.PAGES,
    *privacy.PAGES,
    *requests.PAGES,
    *progress.PAGES,
    *models.PAGES,
    *trials.PAGES,
    *evolution.PAGES,
    *registries.PAGES,
    *artifacts.PAGES,
    *lineage.PAGES,
    *runs.PAGES,
    *sql.PAGES,
    *account.PAGES,
)
"""Each page that there is; what is not listed here has no route."""
