"""Settings: what can be set in an installation, and what holds where nothing is."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from proxy.config import GatewayConfig, ListenAddress, refuse_clashes
from trajectory.assembly.effects import SideEffect
from trajectory.errors import ConfigurationError

DEFAULT_HOME = Path(".headrace")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LakeSettings(_Section):
    """Settings of the lake."""

    path: str = ""
    """A folder, or ``s3://…``, ``gs://…``, ``az://…``; empty means ``lake`` in the home folder."""
    options: dict[str, str] = Field(default_factory=dict)
    """How to reach the object store (``AWS_ENDPOINT_URL``, ``AWS_REGION``, …); credentials belong in the environment."""
    vacuum_hours: float = Field(default=168, ge=24, le=87_600)
    """How long files that left a table stay for time travel before maintenance removes them."""
    log_commits: int = Field(default=2_000, ge=200)
    """How many commits of each table time travel can go back at least; each costs every commit a little."""
    sweep_hours: float = Field(default=24, gt=0, le=87_600)
    """How often maintenance removes what has reached the end of its retention."""


class PolicySettings(_Section):
    """Which policy bundle governs."""

    bundle: str = "default"
    """Name of a shipped bundle (``default``), or a folder of policy documents."""
    reveal_users: tuple[str, ...] = ()
    """Users who may open sealed values (``headrace reveal``), by name; nobody by default."""
    four_eyes: tuple[Literal["promote", "erase", "reveal", "release", "policy"], ...] = ()
    """Acts for which one person asks and another one approves (``headrace requests``). With ``policy``, the
    bundle in force is the one that ``headrace policy adopt`` put there, whatever ``policy.bundle`` says."""

    @property
    def folder(self) -> Path:
        """The bundle in force: its folder, or its name where it is a shipped one.

        Raises:
            ConfigurationError: two people decide which it is, and have not yet.
        """
        folder = Path(self.bundle)
        if "policy" in self.four_eyes and not folder.is_dir():
            raise ConfigurationError(
                "no policy is adopted yet, and two people decide which is in force (policy.four_eyes): ask "
                "for one with `headrace policy adopt BUNDLE`, then a second person approves it"
            )
        return folder


class ConsentSettings(_Section):
    """A consent service of your own, asked about every id of a person that a call gives."""

    url: str = ""
    """Asked with POST ``{"tenant": …, "end_user": …}``; answers ``{"purposes": […]}``. Empty: none."""
    token_env: str = ""
    """Environment variable with the bearer token for it."""
    timeout_seconds: float = Field(default=2.0, gt=0, le=30)
    """Without an answer by then the call is held back until there is one."""
    cache_seconds: float = Field(default=300.0, ge=0, le=604_800)
    """How long an answer counts."""


class GovernSettings(_Section):
    """Settings of the governing process."""

    batch_records: int = Field(default=500, ge=1, le=100_000)
    """Records that one batch (and so one set of commits) takes at most."""
    remembered_calls: int = Field(default=60_000, ge=1_000)
    """Calls of conversations that may go on; 10,000 take about 60 MB of memory. Beyond, the
    conversations that rested longest are forgotten: one that goes on begins a new trajectory."""
    tool_effects: dict[str, SideEffect] = Field(default_factory=dict)
    """What tools do to the world, by pattern of their names (``get_*: read``), the first that fits:
    none | read | idempotent | write | destructive | unknown. Goes before what tool servers say."""
    interval_seconds: float = Field(default=1.0, gt=0, le=604_800)
    """Pause between batches when the spool has little to take."""
    quarantine_days: float = Field(default=14.0, gt=0, le=3_650)
    """How long the sealed content behind a quarantine case is kept, so that it can be released."""
    maintenance_seconds: float = Field(default=900.0, gt=0, le=604_800)
    """Pause between compaction, checkpoints and log clean-up of the lake."""
    trial_seconds: float = Field(default=60.0, gt=0, le=86_400)
    """Pause between two looks at the candidates on trial (``headrace trial step``)."""


ENGINES = ("local", "ray")


class EngineSettings(_Section):
    """Settings of the engine that redacts and builds substrates."""

    name: Literal["local", "ray"] = "local"
    """``local`` (processes of this machine) or ``ray``; ``--engine`` on a command wins."""
    address: str = ""
    """A running Ray cluster (``host:port`` or ``auto``); empty starts one on this machine."""
    workers: int = Field(default=0, ge=0)
    """Worker processes; 0 means one for each core (``local``: beside the governing process, at most 3)."""


class SqlServerSettings(_Section):
    """The SQL server for BI tools and notebooks."""

    enabled: bool = False
    """Whether ``headrace up`` opens it; ``headrace sql-server`` opens it in any case."""
    host: str = "127.0.0.1"
    """Where it listens; beyond this machine it wants a certificate."""
    port: int = Field(default=8489, ge=0, le=65_535)
    """Arrow Flight SQL."""
    http_port: int | None = Field(default=8488, ge=0, le=65_535)
    """SQL over HTTP; null leaves it closed."""
    certificate: Path | None = None
    """Certificate chain in PEM."""
    certificate_key: Path | None = None
    """Its key in PEM."""
    allow_plaintext: bool = False
    """Listen beyond this machine without a certificate: something in front does TLS."""
    seconds: float = Field(default=60.0, gt=0, le=604_800)
    """What one query may take, to its last row."""
    memory_mib: int = Field(default=1024, ge=64)
    """Memory of one query."""
    rows: int = Field(default=5_000_000, ge=1)
    """Rows of one answer."""
    result_mib: int = Field(default=2048, ge=1)
    """Size of one answer."""
    queries: int = Field(default=4, ge=1)
    """Queries at once."""
    queries_per_key: int = Field(default=2, ge=1)
    """Queries at once with one key."""

    @property
    def places(self) -> tuple[ListenAddress, ...]:
        """Where ``headrace up`` opens it, if it does."""
        if not self.enabled:
            return ()
        ports = (("port", self.port), ("http_port", self.http_port))
        return tuple(ListenAddress(f"sql_server.{name}", self.host, port) for name, port in ports)


class RoleGrant(_Section):
    """A role of the console that members of a group have."""

    group: str
    """As the identity provider, or the proxy that signs people in, names it."""
    role: Literal["viewer", "reviewer", "operator", "privacy", "trainer", "admin"]
    """What they may do."""
    tenant: str = "*"
    """In whose data; ``*`` is every tenant's."""


class OidcSettings(_Section):
    """An identity provider that signs people in by OpenID Connect."""

    issuer: str = Field(default="", pattern=r"^(https?://[^\s?#]+)?$")
    """Its address, exactly as it names itself; empty: none."""
    client_id: str = ""
    """What it calls the console; register ``<console.url>/sign-in/callback`` as the redirect address."""
    client_secret_env: str = ""
    """Environment variable with the client's secret; empty: a public client, by PKCE alone."""
    login_client_id: str = ""
    """A public client for ``headrace login`` with redirects to ``http://127.0.0.1``; empty: ``client_id``."""
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    """What it is asked for; some providers tell groups for a scope of their own."""
    name_claim: str = "email"
    """Claim that is a person's name here, in the audit log too. People are told apart by ``sub``."""
    groups_claim: str = "groups"
    """Claim that lists a person's groups (also ``realm_access.roles``); ``console.groups`` gives them roles."""
    clock_skew_seconds: float = Field(default=60.0, ge=0, le=600)
    """How far its clock may be from ours."""


class ConsoleSettings(_Section):
    """The console: Headrace in a browser."""

    enabled: bool = True
    """Whether ``headrace up`` opens it; ``headrace console`` opens it in any case."""
    host: str = "127.0.0.1"
    """Where it listens; beyond this machine it wants a proxy that does TLS, and somebody who signs people in."""
    port: int = Field(default=8487, ge=0, le=65_535)
    """Its port."""
    url: str = Field(default="", pattern=r"^(https://[^/\s?#]+)?$")
    """``https://host[:port]`` by which browsers reach it behind the proxy; empty: on this machine alone."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks (``10.0.0.0/8``) of the proxies that sign people in."""
    proxy_secret_env: str = ""
    """Environment variable with the secret that these proxies send as ``x-headrace-proxy-secret``."""
    user_header: str = "x-forwarded-user"
    """Header in which such a proxy names who signed in."""
    groups_header: str = "x-forwarded-groups"
    """Header in which it lists their groups, with commas between."""
    oidc: OidcSettings = OidcSettings()
    groups: tuple[RoleGrant, ...] = ()
    """Which group has which role, in whose data; nobody has one by default."""
    idle_minutes: float = Field(default=60.0, gt=0, le=10_080)
    """A session that rested so long has ended."""
    session_hours: float = Field(default=12.0, gt=0, le=168)
    """A session ends after so long in any case."""
    queues: tuple[Path, ...] = ()
    """Documents of kind ReviewQueue: what reviewers are asked, beside whether a conversation went right."""


class TrainSettings(_Section):
    """Settings of training."""

    model: str = ""
    """Name of the registered model that ``train run`` improves."""
    base_model: str = ""
    """Folder or name of the base model for a first run."""
    schedules: tuple[Path, ...] = ()
    """Documents of kind Schedule that ``headrace up`` and ``headrace schedule watch`` look after."""


class ServeSettings(_Section):
    """Settings for serving registered models on routes with a ``model``."""

    host: str = "127.0.0.1"
    """Where ``headrace serve`` listens, for the gateway alone."""
    port: int = Field(default=8490, ge=0, le=65_535)
    """Its port."""
    address: str = ""
    """``http://host:port`` by which the gateway reaches it from another machine or container."""
    engine: Literal["auto", "transformers", "vllm"] = "auto"
    """``auto``: vLLM where it is installed, else the transformers library."""
    vllm_arguments: tuple[str, ...] = ()
    """Further arguments of ``vllm serve``, such as ``--gpu-memory-utilization 0.4``."""
    url: str = ""
    """A server of your own that lists versions as ``name@version``; then nothing is started here."""
    drain_seconds: float = Field(default=30.0, ge=1, le=604_800)
    """How long a version that was replaced stays up for calls under way."""


class Settings(_Section):
    """All settings of an installation."""

    home: Path = DEFAULT_HOME
    """Folder of the installation."""
    gateway: GatewayConfig = GatewayConfig()
    lake: LakeSettings = LakeSettings()
    policy: PolicySettings = PolicySettings()
    consent: ConsentSettings = ConsentSettings()
    govern: GovernSettings = GovernSettings()
    engine: EngineSettings = EngineSettings()
    sql_server: SqlServerSettings = SqlServerSettings()
    console: ConsoleSettings = ConsoleSettings()
    train: TrainSettings = TrainSettings()
    serve: ServeSettings = ServeSettings()

    @model_validator(mode="after")
    def _apart(self) -> Self:
        refuse_clashes((*self.gateway.places, *self.sql_server.places))
        return self
