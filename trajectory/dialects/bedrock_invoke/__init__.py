"""Amazon Bedrock's ``invoke``."""
