"""A prompt that stands in several rows of a batch is read once: to generate answers, and in the loss of tries.

Each row gets a copy of its prompt's cache, as in a beam search. The last token is each row's own, because from its
logits the answer's first one follows.
"""

from typing import Any


def share_prompts(net: Any) -> None:
    """Let ``net.generate`` read equal prompts once; it draws what it would have drawn."""
    plain = net.generate

    def generate(*, input_ids: Any, attention_mask: Any, **options: Any) -> Any:
        width = input_ids.shape[1]
        prompts, mask, places = _distinct(input_ids, attention_mask)
        # A model that names a kind of cache makes its own.
        if (
            len(prompts) < len(input_ids)
            and width > 1
            and not net.generation_config.cache_implementation
        ):
            read = plain(
                input_ids=prompts[:, :-1],
                attention_mask=mask[:, :-1],
                do_sample=False,
                max_new_tokens=1,
                return_dict_in_generate=True,
            )
            read.past_key_values.reorder_cache(places)
            options["past_key_values"] = read.past_key_values
        return plain(input_ids=input_ids, attention_mask=attention_mask, **options)

    net.generate = generate


def sharing_forward(net: Any, width: int) -> Any:
    """Return a forward pass of ``net`` that reads equal prompts once; loss and gradient are those of the whole rows.

    Rows begin with ``width`` places of prompt. Outputs begin at its last one, from which the first scored token follows.
    """
    if width < 2 or not _keeps_all(net):
        return net
    last = width - 1

    def forward(*, input_ids: Any, attention_mask: Any, labels: Any, **options: Any) -> Any:
        prompts, mask, places = _distinct(input_ids[:, :last], attention_mask[:, :last])
        if len(prompts) < len(input_ids):
            read = net(input_ids=prompts, attention_mask=mask, use_cache=True, logits_to_keep=1)
            read.past_key_values.reorder_cache(places)
            options["past_key_values"] = read.past_key_values
            input_ids, labels = input_ids[:, last:], labels[:, last:]
        return net(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **options)

    return forward


def _distinct(input_ids: Any, attention_mask: Any) -> tuple[Any, Any, Any]:
    """Return the distinct prompts, their masks, and the place of each row's among them."""
    import torch

    rows: Any = torch.cat((input_ids, attention_mask), 1)
    distinct, places = rows.unique(dim=0, return_inverse=True)
    ids, mask = distinct.split(input_ids.shape[1], 1)
    return ids, mask, places


def _keeps_all(net: Any) -> bool:
    """Whether each layer's cache is the keys and values of all tokens, through which a gradient goes back."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=net.config).layers)
