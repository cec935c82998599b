"""``headrace keys``: who may call the gateway, as which tenant and app."""

from typing import Annotated

import typer

from headrace.cli.common import JsonOption, Running, YesOption, confirm
from headrace.installation import gateway_config
from headrace.render import jsonable, print_fields, print_rows
from proxy.identity import PURPOSES, KeyRegistry

app = typer.Typer(help="Client keys of the gateway.", no_args_is_help=True)


def _registry(running: Running) -> KeyRegistry:
    return KeyRegistry.load(gateway_config(running.settings, running.home.create()).keys)


@app.command()
def create(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="Whose data the calls with this key are.")],
    app_name: Annotated[str, typer.Option("--app", help="Which application calls.")] = "default",
    environment: Annotated[str, typer.Option(help="production, staging, …")] = "production",
    purpose: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Purpose that calls with this key grant; repeat. One of: {', '.join(PURPOSES)}."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a client key. It is shown once and kept only as a hash."""
    created = _registry(Running.of(context)).create(
        tenant_id=tenant, app_id=app_name, environment=environment, purposes=tuple(purpose or ())
    )
    fields = {
        "key": created.secret,
        "key_id": created.key.key_id,
        "tenant": tenant,
        "app": app_name,
        "environment": environment,
        "purposes": created.key.purposes,
    }
    print_fields(fields, as_json=as_json)


@app.command("list")
def list_keys(context: typer.Context, as_json: JsonOption = False) -> None:
    """List all keys, revoked ones too; secrets are not kept and not shown."""
    rows = [
        {
            "key_id": key.key_id,
            "tenant": key.tenant_id,
            "app": key.app_id,
            "environment": key.environment,
            "purposes": ", ".join(key.purposes),
            "created": key.created_at,
            "revoked": key.revoked_at,
        }
        for key in _registry(Running.of(context)).list()
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
    _registry(Running.of(context)).revoke(key_id)
    typer.echo(f"revoked {key_id}")
