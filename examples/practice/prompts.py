"""What an agent of the practice shop is told beside its task."""

SYSTEM_PROMPT = (
    "You are the order desk of a shop. Call quote with the price_list retail or trade, "
    "then answer with the total."
)

TOOL_NAME = "quote"
TOOL = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Return the total price of so many pieces of an item, from one of the price lists.",
        "parameters": {
            "properties": {
                "item": {
                    "description": "What is ordered, in the plural",
                    "title": "Item",
                    "type": "string",
                },
                "price_list": {
                    "enum": ["retail", "trade"],
                    "title": "Price List",
                    "type": "string",
                },
                "quantity": {"title": "Quantity", "type": "integer"},
            },
            "required": ["item", "price_list", "quantity"],
            "title": "quoteArguments",
            "type": "object",
        },
    },
}
"""As the tool server defines it."""
