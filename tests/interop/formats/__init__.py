"""Others' programs around our documents: validators and instrumentations in an environment of their own."""
