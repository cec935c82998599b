"""The practice model's tokenizer: byte-level BPE with single digits, and its chat template.

The vocabulary is learnt from texts whose planted values are replaced by placeholders, so that no name is a token.
As with other models, the system turn ends with the tools' definitions, one a line of JSON. A call is its name and
arguments between two tags. These tags are ordinary added tokens, so decoding keeps them. The end of a turn is the
end-of-sequence token. A conversation's rendering begins with that of its first messages: one step's tokens are a
prefix of the next step's.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
END = "<|end|>"
PAD = "<|pad|>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
VOCABULARY = 1024

CHAT_TEMPLATE = """\
{%- macro definitions() -%}
{{ '\\n# Tools' }}
{%- for tool in tools -%}
{{ '\\n' }}{{ (tool.function or tool) | tojson(sort_keys=true) }}
{%- endfor -%}
{%- endmacro -%}
{%- if tools and messages and messages[0].role not in ('system', 'developer') -%}
<|system|>{{ definitions() }}<|end|>
{%- endif -%}
{%- for message in messages -%}
{%- set role = 'system' if message.role == 'developer' else message.role -%}
<|{{ role }}|>
{%- if message.content is string -%}{{ message.content }}
{%- elif message.content -%}
{%- for part in message.content -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
{%- if tools and loop.first and role == 'system' -%}{{ definitions() }}{%- endif -%}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
<tool_call>{{ function.name }} {{ function.arguments if function.arguments is string else \
function.arguments | tojson(sort_keys=true) }}</tool_call>
{%- endfor -%}
<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
"""

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<tool_call>(?P<name>[^\s{<]+) ",
            "close": CALL_CLOSE,
            "repeats": True,
            "content": "json",
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
        "content": {"close": END, "content": "text"},
    },
}
"""How the tokenizer's ``parse_response`` reads what the chat template renders."""


def train_tokenizer(texts: Iterable[str]) -> "PreTrainedTokenizerFast":
    """Learn a vocabulary from texts; the same texts give the same vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 2,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([CALL_OPEN, CALL_CLOSE])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(ROLES),
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.response_template = RESPONSE_TEMPLATE
    return fast


def render(
    tokenizer: "PreTrainedTokenizerFast",
    messages: list[dict[str, Any]],
    *,
    tools: list[dict[str, Any]],
    ask: bool,
) -> list[int]:
    """Return the token ids of a conversation; with ``ask`` the assistant's turn is opened."""
    ids = tokenizer.apply_chat_template(
        messages, tools=tools or None, tokenize=True, add_generation_prompt=ask, return_dict=False
    )
    return [int(token) for token in ids]
