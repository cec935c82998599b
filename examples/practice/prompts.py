"""What an agent of the practice shop is told beside its task."""

SYSTEM_PROMPT = (
    "You are the order desk of a shop. Call quote with the price_list retail or trade, "
    "then answer with the total."
)

TOOL_NAME = "quote"
