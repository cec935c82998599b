"""Amazon Bedrock's ``converse``."""
