"""``headrace review``: judge conversations by the questions of a queue."""

from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, note, print_json, print_rows
from headrace.cli.common import JsonOption
from trajectory.errors import ConfigurationError

app = typer.Typer(
    help="Judge conversations by the questions of a queue; the console's page Review does the same.",
    no_args_is_help=True,
)

QueueOption = Annotated[str, typer.Option(help="Name of the queue, as `queues` lists it.")]


@app.command()
def queues(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the queues with their questions."""
    from headrace.services.review_queues import queues_of

    rows = [
        {
            "queue": queue.name,
            "question": one.name,
            "type": one.type,
            "asks": one.ask,
            "answers": ", ".join(one.options) or None,
            "required": one.required,
        }
        for queue in queues_of(AppContext.of(context))
        for one in queue.spec.questions
    ]
    print_rows(rows, as_json=as_json, empty="no queue")


@app.command("next")
def next_one(
    context: typer.Context,
    queue: QueueOption = "success",
    after: Annotated[
        str | None, typer.Option(help="Trajectory after which to go on; skips it and later ones.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Name the next conversation that you have not answered; `headrace trajectory show` shows it."""
    from headrace.services.review_answers import next_conversation, rows_of_lake
    from headrace.services.review_queues import queue_of
    from headrace.services.reviews import rater_of

    running = AppContext.of(context)
    chosen = queue_of(running, queue)
    rater = rater_of(running, running.user.name)
    found = next_conversation(rows_of_lake(running), chosen, rater, last=after)
    if as_json:
        print_json(jsonable({"trajectory": found}))
    else:
        rows = [] if found is None else [jsonable(found)]
        print_rows(rows, as_json=False, empty="nothing is left in this queue")


@app.command()
def answer(
    context: typer.Context,
    trajectory_id: Annotated[str, typer.Argument(help="Id of the trajectory.")],
    answers: Annotated[list[str], typer.Argument(help="QUESTION=ANSWER, for each question.")],
    queue: QueueOption = "success",
    comment: Annotated[str, typer.Option(help="Why; redacted before it is stored.")] = "",
) -> None:
    """Answer a queue's questions about one conversation, through the running gateway."""
    from headrace.services.review_answers import answer as hand_on
    from headrace.services.review_queues import queue_of

    running = AppContext.of(context)
    given = {}
    for one in answers:
        name, equals, said = one.partition("=")
        if not equals:
            raise ConfigurationError(f"{one[:60]!r} is not QUESTION=ANSWER")
        given[name] = said
    found = running.lake.query(
        "SELECT tenant_id, trajectory_id FROM steps WHERE trajectory_id = $id LIMIT 1",
        {"id": trajectory_id},
    ).to_pylist()
    if not found:
        raise ConfigurationError(f"no trajectory {trajectory_id!r}; see `headrace review next`")
    hand_on(running, running.user.name, queue_of(running, queue), found[0], given, comment)
    note("taken; it is redacted before it is stored")


@app.command()
def agreement(
    context: typer.Context, queue: QueueOption = "success", as_json: JsonOption = False
) -> None:
    """Show for each question how far each two raters agree: Cohen's kappa, weighted on scales."""
    from headrace.services.review_answers import how_far_raters_agree, rows_of_lake
    from headrace.services.review_queues import queue_of

    running = AppContext.of(context)
    found = how_far_raters_agree(rows_of_lake(running), queue_of(running, queue))
    rows = found if as_json else [{**one, "raters": ", ".join(one["raters"])} for one in found]
    print_rows(rows, as_json=as_json, empty="no two people have judged the same conversation")
