"""Recording: what passes is copied into the sealed spool, and token ids are asked for and taken out."""
