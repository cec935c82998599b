"""``headrace keys``: who may call the gateway or read the lake, as which tenant and app."""

from dataclasses import asdict
from typing import Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.installation import gateway_config
from headrace.app.output import jsonable, print_fields, print_rows
from headrace.cli.common import JsonOption, YesOption, confirm
from proxy.clients.keys import PURPOSES, ClientKey, KeyLimits, KeyRegistry, Noted

app = typer.Typer(help="Client keys of the gateway and of the SQL server.", no_args_is_help=True)


RequestsOption = Annotated[
    int | None, typer.Option("--requests-per-minute", min=0, help="Limit; by default none.")
]
TokensOption = Annotated[
    int | None,
    typer.Option("--tokens-per-day", min=0, help="Input and output tokens per day (UTC)."),
]
MoneyOption = Annotated[
    float | None,
    typer.Option(
        "--money-per-day",
        min=0,
        help="What models cost per day (UTC), in the currency of the price table.",
    ),
]
StepsOption = Annotated[
    int | None,
    typer.Option("--steps-per-session", min=0, help="Model calls in one session."),
]


def _shown(limits: KeyLimits) -> str:
    texts = {name: value for name, value in asdict(limits).items() if value is not None}
    return ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in texts.items())


def _registry(running: AppContext) -> KeyRegistry:
    return KeyRegistry.load(gateway_config(running.settings, running.home.create()).keys)


def _noted(running: AppContext, action: str) -> Noted:
    """Return what writes into the audit log who may call, and for which purposes."""

    def note(key: ClientKey) -> None:
        running.audit.append(
            actor=running.user.name,
            action=action,
            subject=key.key_id,
            detail={
                "tenant": key.tenant_id,
                "app": key.app_id,
                "environment": key.environment,
                "purposes": [*key.purposes],
                "roles": [*key.roles],
                "limits": _shown(key.limits),
            },
        )

    return note


@app.command()
def create(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="Tenant of the calls with this key.")],
    app_name: Annotated[
        str, typer.Option("--app", help="Application that calls with this key.")
    ] = "default",
    environment: Annotated[str, typer.Option(help="production, staging, …")] = "production",
    purpose: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Purpose that calls with this key grant; repeat. One of: {', '.join(PURPOSES)}."
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="What the key opens; repeat. gateway (the default): calls; lake: reading its "
            "tenant's tables through the SQL server, '*' as tenant means all; tokens: token ids too."
        ),
    ] = None,
    requests_per_minute: RequestsOption = None,
    tokens_per_day: TokensOption = None,
    steps_per_session: StepsOption = None,
    money_per_day: MoneyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a client key. It is shown once and kept only as a hash."""
    running = AppContext.of(context)
    created = _registry(running).create(
        tenant_id=tenant,
        app_id=app_name,
        environment=environment,
        purposes=tuple(purpose or ()),
        limits=KeyLimits(requests_per_minute, tokens_per_day, steps_per_session, money_per_day),
        roles=tuple(role or ("gateway",)),
        noted=_noted(running, "key.created"),
    )
    fields = {
        "key": created.secret,
        "key_id": created.key.key_id,
        "tenant": tenant,
        "app": app_name,
        "environment": environment,
        "roles": created.key.roles,
        "purposes": created.key.purposes,
        "limits": _shown(created.key.limits),
    }
    print_fields(fields, as_json=as_json)


@app.command()
def limit(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(help="As `headrace keys list` shows it.")],
    requests_per_minute: RequestsOption = None,
    tokens_per_day: TokensOption = None,
    steps_per_session: StepsOption = None,
    money_per_day: MoneyOption = None,
) -> None:
    """Give a key these limits and no others; a running gateway follows within half a second."""
    limits = KeyLimits(requests_per_minute, tokens_per_day, steps_per_session, money_per_day)
    running = AppContext.of(context)
    key = _registry(running).limit(key_id, limits, noted=_noted(running, "key.limited"))
    typer.echo(f"{key.key_id}: {_shown(key.limits) or 'no limits'}")


@app.command()
def rotate(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(help="As `headrace keys list` shows it.")],
    grace_minutes: Annotated[
        float, typer.Option(min=0, help="Minutes for which the old secret stays valid.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Give a key a new secret, shown once; the old one works for another hour."""
    running = AppContext.of(context)
    created = _registry(running).rotate(
        key_id, grace_seconds=60 * grace_minutes, noted=_noted(running, "key.rotated")
    )
    print_fields({"key": created.secret, "key_id": key_id}, as_json=as_json)


@app.command("list")
def list_keys(context: typer.Context, as_json: JsonOption = False) -> None:
    """List all keys, revoked ones too; secrets are not kept and not shown."""
    rows = [
        {
            "key_id": key.key_id,
            "tenant": key.tenant_id,
            "app": key.app_id,
            "environment": key.environment,
            "roles": ", ".join(key.roles),
            "purposes": ", ".join(key.purposes),
            "limits": _shown(key.limits),
            "created": key.created_at,
            "revoked": key.revoked_at,
        }
        for key in _registry(AppContext.of(context)).list()
    ]
    print_rows(
        jsonable(rows), as_json=as_json, empty="no keys yet: `headrace keys create --tenant NAME`"
    )


@app.command()
def revoke(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(help="As `headrace keys list` shows it.")],
    yes: YesOption = False,
) -> None:
    """Revoke a key; a running gateway refuses it within half a second."""
    confirm(f"Revoke {key_id}? Clients that use it are refused at once.", yes=yes)
    running = AppContext.of(context)
    revoked = _registry(running).revoke(key_id)  # first: a stolen key ends whatever the log does
    _noted(running, "key.revoked")(revoked)
    typer.echo(f"revoked {key_id}")
