"""What is written with a capital and is nobody stays: tools, models, companies, versions, prose."""

from functools import cache

import pytest

from governance.policy.redaction import RedactionSpec
from governance.redact import Redactor, build_redactor
from tests.governance.redaction_support import KEY, SCOPE


@cache
def _with_model() -> Redactor:
    return build_redactor(RedactionSpec(), pseudonym_key=KEY)


@pytest.mark.parametrize(
    "kept",
    [
        "Jenkins, Kafka, Django, Ruby, Pascal and Jupyter", "We moved from Kafka to Hadoop.",
        '{"tools": ["Jira", "Vagrant"]}', "Solr vs Pandas", "Claude Opus is faster than Grok.",
        "We compared Nova Lite, Gemini Pro and GPT.", "Vendors: Hugo Boss, Ernst & Young",
        "shares of Wells Fargo rose", "From Nancy to Dallas by train.", "Font: Montserrat",
        "git@github.com:acme/core.git", "pip install git+ssh://git@github.com/acme/core.git@v1.2.3",
        "git checkout -b fix/august-rollover && git push -u origin fix/august-rollover",
        "version 1.2.3.4", '"version": "1.2.3.4"', "Chrome/14.20.1.30 Safari/537.36", "core-1.2.3.4.tar.gz",
        "upgrade to 1.2.3.4", "/search?zip=94110&age=34",
        "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377",
        "Drucker funktioniert nicht mehr", "Betreff: Urlaubsplanung", "Wann kommt die Lieferung?",
        "Frage: Woher kommt das Paket?", "Bald kommt der Techniker.", "Womit beginnt die Schulung?", "Die Besprechung f\u00e4llt aus.",
        "Bitte Kabel pr\u00fcfen und Ger\u00e4t neu starten.", "Le projet avance bien.", "Oggetto: ferie estive",
        "Ekran jest czarny.", "\u041f\u0440\u0438\u043d\u0442\u0435\u0440 \u043d\u0435 \u0440\u0430\u0431\u043e\u0442\u0430\u0435\u0442.", "Yaz\u0131c\u0131 \u00e7al\u0131\u015fm\u0131yor.",
        "Alba liegt im Piemont.", "Rainfall in Chad was below the average.", "It reads 291 Kelvin at noon.",
        "Fagus sylvatica and Felis catus", "Rosa canina needs full sun.", "The Lena freezes in October.",
        "Heilbronn plant eine Br\u00fccke.", "Leider f\u00e4llt der Zug nach Ulm aus.", "Orlando airport is closed.",
        "Convert Celsius to Fahrenheit.", "Ostatnio ceny w Gdyni spad\u0142y.", "ECDHE:!PSK:!aECDH", "wpa-psk: true",
        "git@github.com:zorvex/core.git", "git clone git@gitlab.example.com:northwind/infra.git",
        "origin  ssh://git@bitbucket.org/kestrel-labs/api.git (push)",
        "- name: Build Docker Image\n  run: docker build .", "- name: Phoenix\n  version: 2", "name: Nightly Build\non: push",
        "Author: Jenkins CI <noreply@jenkins.io>", "Author: Release Automation <noreply@github.com>",
        "Customer: Christian Dior", "Customer: Hugo Boss", "Customer: Macy's", "The contract with Macy's ends in May.",
        "Rechnung von M\u00fcller GmbH", "Cliente: M\u00fcller GmbH", "Owner: Network Operations", "Ask Llama Guard instead.",
        "Assignee: Unassigned", "Approved by: Change Advisory Board", "Angebot f\u00fcr B\u00fcrom\u00f6bel",
        "ssh deploy@bastion.internal uptime", "\u041a\u043b\u0438\u0435\u043d\u0442: \u041e\u041e\u041e \u0420\u043e\u043c\u0430\u0448\u043a\u0430",
        "\u041e\u0442\u0432\u0435\u0442\u0441\u0442\u0432\u0435\u043d\u043d\u044b\u0439: \u041e\u0442\u0434\u0435\u043b \u0437\u0430\u043a\u0443\u043f\u043e\u043a",
        "Author: Weblate <noreply@weblate.org>", "Author: Copilot <198982749+Copilot@users.noreply.github.com>",
        "Author: Kubernetes Prow Robot <k8s-ci-robot@users.noreply.github.com>", "Reviewed-by: Security Guild",
        "Audit: deployer@shop-prod.iam.gserviceaccount.com changed the policy", "Kunde: Gasthof Adler", "Raum Humboldt ist belegt.",
        "Der Richter entschied, der Zug fuhr.", "Rechnung von Schneider Electric", "Клиент: ПАО Сбербанк", "Lorenz attractor",
        "プリンターが動きません。", "在庫はありません。", "お世話になっております。", "担当：サポートチーム", "请确认一下。", "客户：华为技术有限公司",
        "联系人：客服中心", "数据库已备份。", "希望是件好事。", "회의는 화요일입니다.", "안녕하세요 여러분,", "고객: 삼성전자", "프린터 연결 오류",
    ],
)  # fmt: skip
def test_it_stays(kept: str) -> None:
    assert _with_model().redact_text(kept, scope=SCOPE).text == kept


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Florence moved to another team.", "Florence"), ("Customer Madison filed a complaint.", "Madison"),
        ("My name is Jenkins.", "Jenkins"), ("Grace Hudson called.", "Hudson"),
        ("Chad said he would fix it.", "Chad"), ("Kelvin replied at once.", "Kelvin"), ("Thanks Milan!", "Milan"),
        ("Sofia needs a new badge.", "Sofia"), ("Rosario Santos is our tenant.", "Santos"),
        ("Gestern rief Hannelore an.", "Hannelore"), ("Oggi Oyelaran ha scritto.", "Oyelaran"),
        ("mhartl/178.12.4.91:1194 PUSH: Received", "178.12.4.91"), ("mhartl/178.12.4.91:1194 PUSH: Received", "mhartl"),
        ("host=178.12.4.91:8443 refused", "178.12.4.91"),
        ("Prosz\u0119 o kontakt: 511 204 887", "511 204 887"), ("Prosimy o kontakt: 605 330 918", "605 330 918"),
        ("Customer: Paul Smith", "Smith"), ("Author: Ross Jenkins <noreply@jenkins.io>", "Jenkins"), ("Kunde: Anna M\u00fcller", "M\u00fcller"),
        ("- name: Anna Berger\n  age: 43", "Berger"), ("- name: Zorv Kelbin\n  image: z.png", "Kelbin"), ("担当：長谷部誠", "長谷部誠"), ("长期客户：王秀英", "王秀英"), ("고객: 김영희", "김영희"), ("고객: 공지영", "공지영"), ("谢谢周丽华的帮助。", "周丽华"), ("问题由赵敏解决。", "赵敏"),
        ("会议由孙海涛主持。", "孙海涛"), ("本日渡辺が対応します。", "渡辺"), ("오늘 박지훈이 휴가입니다.", "박지훈"), ("担当：ごとうなおみ", "ごとうなおみ"),
        ("佐藤さくらさんが会議に来ます。", "佐藤"), ("ИП Соколова", "Соколова"),
        ("Author: Weblate Hartwig <weblate@globex.co>", "Hartwig"), ("Herr Richter entschied.", "Richter"),
        ("From: Zorv Kelbin <noreply@github.com>", "Kelbin"), ("From: Thandeka <noreply@atlassian.com>", "Thandeka"),
        ("Author: Ines Okafor <18+okafor@users.noreply.github.com>", "okafor"), ("Reporter: Guido Squadroni", "Squadroni"), ("Customer: William Hill", "Hill"),
        ("Connect to 10.20.30.40 now", "10.20.30.40"), ("scp a.txt b@10.20.30.40:/tmp", "10.20.30.40"),
    ],
)  # fmt: skip
def test_people_and_machines_of_such_names_go(given: str, name: str) -> None:
    assert name not in _with_model().redact_text(given, scope=SCOPE).text
