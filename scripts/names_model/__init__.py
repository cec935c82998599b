"""Training the names model, and gathering its word lists. No part of the product."""
