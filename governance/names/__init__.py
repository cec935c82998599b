"""Names of people: word lists, and the small model that ships with Headrace."""
