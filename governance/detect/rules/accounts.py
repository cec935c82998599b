"""Accounts of people on machines: home folders, listings, prompts, logins, logs; service accounts stay."""

import re
from functools import cache

from governance.detect.rules.rule import Rule
from governance.names.words import common, family_names, first_names, is_plain, last_names, things

_SERVICE_WORDS = """
    root toor ubuntu admin administrator administrador sysadmin superuser www-data www wwwrun http httpd apache
    apache2 nginx caddy lighttpd haproxy envoy traefik postgres postgresql pgsql pg mysql mariadb mongodb mongod mongo redis
    memcached memcache elasticsearch elastic opensearch kibana logstash fluentd kafka zookeeper rabbitmq
    cassandra clickhouse influxdb oracle mssql sa dbuser dbadmin db database git gitlab gitea github gogs
    gitlab-runner gitlab-ci jenkins runner runneradmin actions circleci travis buildkite-agent teamcity
    bamboo drone ci cd build builder deploy deployer deployment release app apps appuser application
    api web webapp webuser service svc worker workers node nodejs java tomcat tomcat8 jetty wildfly jboss
    php-fpm php python django flask rails ruby celery airflow superset spark hadoop hdfs yarn hive
    zeppelin jupyter jovyan notebook rstudio user users user1 user2 username user_name guest nobody nogroup nfsnobody
    anonymous anon daemon bin sys sync games man lp mail news uucp proxy backup list irc gnats operator
    staff wheel adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip video plugdev
    netdev lpadmin scanner sambashare lxd libvirt libvirt-qemu kvm docker podman containerd kubelet kube
    kubernetes k8s etcd rke k3s messagebus dbus syslog rsyslog systemd sshd ssh ftp ftpuser sftp tftp ntp chrony
    named bind dnsmasq unbound dovecot postfix exim4 exim sendmail spamd clamav amavis opendkim nagios
    icinga zabbix prometheus grafana loki telegraf datadog dd-agent newrelic splunk ossec wazuh vagrant
    vboxadd vmware ansible puppet chef salt terraform packer consul vault nomad centos debian fedora rhel
    rocky almalinux amazon ec2-user ec2 core coreos opc azureuser azure gcp aws cloud cloud-user cloud-init
    bitnami pi raspberry odoo nextcloud wordpress wp drupal magento joomla moodle minecraft steam
    plex jellyfin homeassistant hass vscode code codespace codespaces coder gitpod devcontainer sandbox sbx
    default public shared all everyone authenticated system localsystem local network networkservice
    defaultuser wdagutilityaccount test tests tester testing testuser demo dev devs developer developers
    development prod production staging stage qa uat example sample dummy fake foo bar baz qux foobar
    me you your yourname youruser yourusername your-username myuser myname name self someone somebody person
    client customer member account owner author assistant agent agents model bot chatbot robot tool tools
    function human openai anthropic claude gemini copilot codex dependabot renovate feature features fix
    fixes bugfix hotfix chore docs refactor main master develop origin upstream head linuxbrew homebrew
    snap flatpak opt lost+found ssl-cert tss render input crontab utmp colord geoclue avahi rtkit pulse
    saned hplip gdm lightdm sddm whoopsie kernoops speech-dispatcher cups-pk-helper nm-openvpn tcpdump
    landscape fwupd-refresh pollinate uuidd usbmux _apt unknown invalid none null nil undefined true false
    string str int integer number boolean bool object array type text value required optional async await
    lambda const let var new return import from export default class def function fn func void any this
    props state req res request response ctx context session event data json xml html payload params args
    kwargs options config settings env environ process os module require lib libs src dist tmp temp var
    log logs cache home desktop documents downloads library pictures music movies videos applications
    students teachers faculty research nas media mnt share photos projects project repo repos workspace work
    index dashboard profile login logout signup signin register settings page pages about contact
    """
_SERVICES = frozenset(_SERVICE_WORDS.split())
_PROGRAM_WORDS = """
    app user users file close open id db api web svc service current admin test dev prod auth login name
    get set self this ctx req res next prev first last obj row item model view controller handler manager
    client server session token key value data config env read write create update delete list count
    index path dir url uri src dst job task queue worker cache log event state type kind role group email
    schema public default system root bot ci build deploy git ssh http sql pg my sys net core util
    utils helper factory provider repo repository dao dto impl base main lib tmp temp local remote global
    ro rw readonly master replica primary backup monitor monitoring metrics report reports analytics etl reader writer
    """
_PROGRAM = frozenset(_PROGRAM_WORDS.split())
_PARTS = re.compile(r"[^\W\d_]+")
_FILE = re.compile(
    r"(?i).*\.(?:html?|php|jsp|aspx?|[jt]sx?|css|vue|py|rb|go|java|png|jpe?g|svg|json|ya?ml|txt|md|sh|log|conf|com|org|net|io|dev)\Z"
)


@cache
def _plain() -> frozenset[str]:
    return common() | _SERVICES | _PROGRAM


def person_account(value: str) -> bool | None:
    """False for service accounts, words and pieces of programs; True for what is left."""
    lower = value.lower().rstrip("$")
    if (
        len(lower) < 2
        or lower in _SERVICES
        or lower.startswith(("_", "systemd-", "svc-", "svc_", "sa-"))
    ):
        return False
    if lower.endswith(
        (
            "-runner",
            "-agent",
            "-user",
            "_user",
            "-svc",
            "_svc",
            "-bot",
            "[bot]",
            "-service",
            "_service",
            "daemon",
            "user",
        )
    ):
        return False
    parts = _PARTS.findall(lower)
    if parts and sum(map(str.isdigit, lower)) >= 3 and len(lower) <= 24:
        return not lower.startswith("ip-")
    if not parts or _FILE.match(lower):
        return False
    if len(parts) == 1 and len(parts[0]) == len(lower):
        return lower not in common() or _is_a_name(lower.capitalize())
    return not all(part in _plain() or len(part) == 1 for part in parts)


def _is_a_name(word: str) -> bool:
    return word in first_names() or word in last_names()


def told_account(value: str) -> bool | None:
    """The same where only a word like "user" stands before it: no capitals, no piece of a program."""
    if not value[:1].islower() or not person_account(value):
        return False
    return value.lower() not in common()


def mentioned(value: str) -> bool:
    """The same for what stands behind an at sign in prose: no decorator, team or package."""
    plain = value.lower().rstrip(".-_")
    return person_account(plain) is True and not is_plain(plain) and plain not in things()


@cache
def _names() -> frozenset[str]:
    return first_names() | family_names()


_SHE = ("ska", "cka", "dzka")
"""How family names end that a woman has, where a list has a man's: Kowalska."""


def named_after_somebody(value: str) -> bool:
    """Whether an account is made of somebody's name: ``hkobayashi``, ``annikas``, ``marta.nowak``."""
    plain = value.lower().rstrip(".-_0123456789")
    if not mentioned(plain):
        return False
    names = _names()
    parts = _PARTS.findall(plain)
    if len(parts) > 1:
        return any(len(part) > 2 and part.capitalize() in names for part in parts)
    made = [plain, plain[1:], plain[2:], plain[:-1]]
    if plain.endswith(_SHE):
        made.append(plain[1:-1] + "i")
    return any(len(part) > 3 and part.capitalize() in names for part in made)


_NAME = r"([A-Za-z\xc0-\xff][\w.\-\xc0-\xff]{1,38})"
_SMALL = r"([a-z][a-z0-9._\-]{1,31}\$?)"
_MODE = r"(?:[r\-][w\-][xsStT\-]){3}"
_RIGHT = r"\w"
_LABEL = (
    r"(?:[A-Za-z]{1,12}[_\-])?(?:user(?:[_\- ]?name)?|login|logname|uid|actor|acct|samaccountname|mailnickname|account[_ ]?name|logged in as|"
    r"benutzer(?:name)?|utilisateur|usuario|nom d'utilisateur|nombre de usuario|nome utente|utente|gebruikersnaam|gebruiker)"
)
_COMMANDS = (
    r"(?:su(?: -l?)?|lastlog(?: -u)?|Get-(?:AD|Local|Mg)User(?: -Identity)?|sudo -i?u|sudo -H -u|chown(?: -[a-zA-Z]+)?|chage -l|useradd(?: -[a-zA-Z]+(?: \"[^\"\n]{0,60}\"| [\w,/]+)?){0,6}|adduser|userdel(?: -r)?|"
    r"usermod(?: -[a-zA-Z]+ [\w,]+)?|passwd|finger|groups|id(?: -[a-z]+)?|last|crontab -u|getent passwd|loginctl user-status|"
    r"p(?:s|kill|grep) -u|net user|lslogins)"
)


def _account(
    name: str, regex: str, *needs: str, check: object = person_account, **more: object
) -> Rule:
    return Rule(
        f"account_{name}", "USERNAME", regex, 0.8, 1, needs=needs, check=check, right=_RIGHT, ignore_case=False, **more,  # type: ignore[arg-type]
    )  # fmt: skip


ACCOUNTS: tuple[Rule, ...] = (
    _account("home", rf"(?:/homes?|/Users|/export/home)/{_NAME}", "/home", "/users/"),
    _account("mailbox", rf"/var/(?:spool/)?(?:mail|cron(?:/crontabs|/tabs)?)/{_NAME}", "/var/"),
    _account(
        "windows_home", r"(?i:[A-Z]:|/mnt/[a-z]|/[a-z])[\\/]{1,2}(?:Users|Documents and Settings)[\\/]{0,2}([\w.\- \n\xc0-\xff][\w.\-\xc0-\xff]{1,38})", "users", "documents and",
    ),
    _account("share", rf"\\\\[\w.\-]+\\(?:home|homes|users|Users|profiles)\$?\\{_NAME}", "\\\\"),
    _account("owner", rf"^\s{{0,8}}[bcdlps\-]{_MODE}[@+.]?\s+(?:\d+\s+)?{_SMALL}\s", "rw", "r-", "-w", "--"),
    _account("group", rf"^\s{{0,8}}[bcdlps\-]{_MODE}[@+.]?\s+\d+\s+[\w.\-$]+\s+{_SMALL}\s", "rw", "r-", "-w", "--"),
    _account("mode", rf"^[bcdlps\-]{_MODE}\s[^\n]{{0,60}}?/{_SMALL}$", "rw", "r-", "-w", "--"),
    _account("number", rf"(?:[ug]id|groups)=\d+\({_SMALL}\)", "id=", "groups="),
    _account("number_of_group", rf",\d+\({_SMALL}\)", "("),
    _account("prompt", rf"^(?:\([\w.\-]+\) )?\[?{_SMALL}@[\w.\-]+(?:[: ][^\n$#%>@]{{0,80}}?)?\]? ?[$#%>❯](?:\s|$)".replace("❯", ""), "@"),
    _account("remote", rf"\b(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id|sshfs)\s(?:[^\n@]{{0,120}}?[\s'\"])?{_SMALL}@[\w.\-]+", "ssh", "scp", "sftp", "rsync", "mosh"),
    _account("command", rf"(?:^|[$#%;&|>]\s{{0,3}}| -- )(?:sudo )?(?:{_COMMANDS} |runas /user:){_SMALL}(?:[: \n/]|$)", "su", "chown", "chage", "user", "passwd", "finger", "groups", "id", "last", "crontab", "ps", "pkill", "pgrep", "dscl", "lslogins", "aduser", "localuser", "mguser"),
    _account("process_in_full", rf"^{_SMALL}\s+\d{{1,7}}\s+\d{{1,7}}\s+\d{{1,3}}\s+(?:\d\d:\d\d|[A-Z][a-z]{{2}}\d\d|\d{{4}})\s", fewest_digits=6),
    _account("acted", rf"(?i:\b(?:opened|closed|reopened|assigned|created|reported|merged|committed|pushed|requested|approved|reviewed|escalated|updated|edited|submitted|commented|deployed)) by {_SMALL}(?:[\s.,;:!?)]|$)", " by ", check=mentioned),
    _account("of_database", rf"(?i:\b(?:create|alter|drop) (?:user|role|login)(?: if (?:not )?exists)?) [\"'`]?{_SMALL}[\"'`]?(?:[\s;@]|$)", "user", "role", "login", check=mentioned),
    _account("of_cloud_init", rf"(?:^|\n)[ \t]*-? ?name: {_SMALL}\n[ \t]+(?:sudo|groups|shell|passwd|hashed_passwd|ssh[_\-]authorized[_\-]keys|lock_passwd|uid|homedir|gecos|primary_group):", "name:"),
    _account("searched", rf"\b(?:getent \w+|lastlog|last|who|users|w|lslogins|cat /etc/(?:passwd|group|shadow)) ?\| ?grep (?:-\w+ )?[\"']?\^?{_SMALL}", "grep"),
    _account("looked_up", rf"\bgrep (?:-\w+ )?[\"']?\^?{_SMALL}:?[\"']? /etc/(?:passwd|group|shadow|sudoers)", "/etc/"),
    _account("basic", rf"\b(?:curl|wget)\b[^\n]{{0,200}}?[ \t](?:-[a-zA-Z]{{0,4}}u|--user|-a|--auth|--proxy-user)[ \t=]?[\"']?{_SMALL}:", "curl", "wget"),
    _account("htpasswd", rf"\bhtpasswd\b[^\n]{{0,40}}?[ \t][^\s]{{0,60}}(?:/|htpasswd|passwd|users)[^\s]{{0,60}}[ \t]{_SMALL}[ \t]", "htpasswd"),
    _account("netrc", rf"\bmachine[ \t\n]+[\w.\-]+[ \t\n]+login[ \t\n]+{_SMALL}\s", "machine"),
    _account("told", rf"(?i:\b(?:my|his|her|their|the) (?:user ?name|user ?id|login|account|handle)(?: name)? (?:is|was):? )[\"'`@]?{_SMALL}(?:[\s.,;!?\"'`)]|$)", "user", "login", "account", "handle", check=told_account),
    _account("beside", rf"(?i:[,;(] ?(?:user ?name|user|login)) {_SMALL}(?:[.,;!?)\n]|$)", "user", "login", check=told_account),
    _account("pinged", rf"(?i:\b(?:cc|ping|fyi|thanks|thank you|hey|hi|hello|to|by|from|with|ask|for|and|reviewers?:?|assignees?:?))[: ,]{{1,2}}@{_SMALL}(?:[\s.,;:!?)]|$)", "@", check=mentioned),
    _account("addressed", rf"(?:^|[\n.!?>] ?)@{_SMALL}[,:]? (?i:can|could|please|would|will|do|did|does|have|has|what|any|are|is|i|we|the|this|that|thanks|take|let|you|your|if|when|how|ok|fyi|lgtm|agreed|good|nice|kannst|k\xf6nntest|bitte|danke|peux|pouvez|merci|puedes|puede|gracias|puoi|grazie|kun|kan|mo\xe0esz|pode)\b", "@", check=mentioned),
    _account("owning_group", rf"\bchown(?: -[a-zA-Z]+)? [\w.\-]+:{_SMALL}\s", "chown"),
    _account("asked", rf"\b(?:whoami|logname|echo \$USER(?:NAME)?|id -un)[ \r]*\n(?:[\w.\-]{{1,20}}\\)?{_SMALL}\s*$", "whoami", "logname", "$user", "id -un"),
    _account("terminal", rf"^{_SMALL}\s+(?:pts/\d+|tty[\w]*|console|:\d)\s", "pts/", "tty", "console", " :", "\t:"),
    _account("process", rf"^{_SMALL}\s+\d{{1,7}}\s+\d{{1,3}}\.\d\s+\d{{1,3}}\.\d\s"),
    _account("passwd", rf"^{_SMALL}:[x*!]:\d{{4,9}}:\d+:", ":x:", ":*:", ":!:"),
    _account("sshd", rf"\b(?:(?:Accepted|Failed|Postponed|Partial) [\w/\-]{{1,30}} for(?: invalid user)?|[Ii]nvalid user|(?:authenticating|invalid) user|from user|of user|for user|by user|logged (?:in|out):?) {_SMALL}(?: from| by| \d{{1,3}}\.|\(uid=|\.? *$|\.\s)", "for ", "user ", "logged"),
    _account("sudo", rf"\bsudo(?:\[\d+\])?:\s+{_SMALL} : ", "sudo"),
    _account("su", rf"\(to [\w\-]+\) {_SMALL} on ", "(to "),
    _account("cron", rf"\bCROND?\[\d+\]: \({_SMALL}\) ", "cron"),
    _account("by", rf"\bby {_SMALL}\(uid=[1-9]", "uid="),
    _account("access_log", rf"^[\w.:\-]+ [\w.\-]+ {_NAME} \[\d\d/[A-Z][a-z]{{2}}/\d{{4}}", "["),
    _account(
        "label", rf"(?i:\b{_LABEL})[\"']?(?:[ \t]{{0,24}}(?:=|:)\s{{0,2}}|[ \t]{{2,40}}|:\t{{1,3}})[\"']?{_SMALL}", "acct", "nickname", "user", "login", "logname", "uid", "actor", "account", "logged", "utilisateur", "usuario", "benutzer", "utente", "gebruiker", check=told_account,
    ),
    _account("quoted", rf"(?i:\b(?:user(?:name)?|login|account|role|owner|benutzer|utilisateur|usuario)) [\"'`]{_SMALL}[\"'`]", "user", "login", "account", "role", "owner", "benutzer", "utilisateur", "usuario", check=told_account),
    _account("of_role", rf"(?i:\b(?:assignee|reporter|reviewer|approver|request[eo]r|author|committer|maintainer|owner|creator|on-?call|(?:opened|created|updated|modified|submitted|approved|reviewed|closed|merged|requested|assigned|last_modified|changed|deployed)[ _\-](?:by|to)))[\"']?[ \t]{{0,3}}[:=][ \t]{{0,3}}[\"'@]?{_SMALL}(?:[\s\"',;)}}]|$)", "assignee", "reporter", "reviewer", "approver", "requeste", "requestor", "author", "committer", "maintainer", "owner", "creator", "oncall", "on-call", "by:", "by=", "by\"", "by'", "by :", "by =", "to:", "to=", "to\"", "to'", "to :", "to =", check=named_after_somebody),
    _account("reviewed", rf"^{_SMALL} (?:requested changes|approved these changes|commented|left a comment|started a review|reviewed|merged (?:commit|\d|this)|(?:re)?opened this|closed this|self-assigned|force-pushed|requested a review|dismissed|mentioned this|unassigned|changed the (?:title|base)|marked this|resolved this|pushed \d|added \d|deployed to)\b", "changes", "comment", "review", "merged", "this", "assigned", "pushed", "dismissed", "changed", "added", "deployed", check=mentioned),
    _account("to_do", rf"\b(?:TODO|FIXME|XXX|HACK|NOTE)\({_SMALL}\)", "todo(", "fixme(", "xxx(", "hack(", "note(", check=named_after_somebody),
    _account("handle", rf"(?:^|[\s(\[*>]){{1}}@{_SMALL}(?:[\s.,;:!?)\]*]|$)", "@", check=named_after_somebody),
    _account("of_word", rf"(?i:\b(?:account|user|login|benutzer(?:in|konto)?|nutzer(?:in)?|konto|compte|cuenta|utilisateur|usuari[oa]|utente|gebruiker|usu\xe1rio|conta|u\xe0ytkownik|kullan\xe0c\xe0)) {_SMALL}(?:[\s.,;:!?)]|$)", "account", "user", "login", "benutzer", "nutzer", "konto", "compte", "cuenta", "utilisateur", "usuari", "utente", "gebruiker", "usu\xe1rio", "conta", "ytkownik", "kullan", check=named_after_somebody),
    _account("tilde", rf"(?:^|[\s=:\"'(])~{_SMALL}(?:/|\s|$)", "~"),
    _account("mention", rf"(?:\[~|\bby @){_SMALL}(?:\]| in https?://)", "[~", "by @"),
    _account("domain", r"(?:^|[\s\"'(=:])[A-Z][A-Z0-9\-]{1,14}\\{1,2}([a-z][\w.\-]{2,31})(?:[\s\"'),;:]|$)", "\\"),
    _account("vpn", rf"(?:^|[\s\]:]){_SMALL}/\d{{1,3}}(?:\.\d{{1,3}}){{3}}:\d{{2,5}}(?:\s|$)", *(f"/{digit}" for digit in range(1, 10))),
    _account("revision", rf"^r\d{{1,7}} \| {_SMALL} \| \d{{4}}-", " | "),
    _account("named", r"(?i:\b(?:account|user|login|benutzer(?:konto)?|konto|compte|cuenta|utilisateur|usuario)) ([a-z]{2,20}(?:[._][a-z]{1,20}\d{0,4}|\d{1,4}))(?:[\s.,;:!?)]|$)", "account", "user", "login", "benutzer", "konto", "compte", "cuenta", "utilisateur", "usuario", check=told_account),
    _account("branch", rf"\b(?:request #\d{{1,7}} from |branch '|branch \"|origin/|branches? ){_SMALL}/[\w.\-]", "request #", "branch", "origin/", check=told_account),
)  # fmt: skip
