"""Cards are Markdown that no name of a tenant, slice or tool can steer."""

from train.registry.model_card import table


def test_a_name_stays_in_its_cell() -> None:
    hostile = "a|b\n\n# Gate: passed <script>alert(1)</script>"
    assert table({hostile: "0.1 → 0.9"}, first="slice", second="success").splitlines() == [
        "| slice | success |",
        "| --- | ---: |",
        "| a\\|b # Gate: passed &lt;script&gt;alert(1)&lt;/script&gt; | 0.1 → 0.9 |",
    ]
