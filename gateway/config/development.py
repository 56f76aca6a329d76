"""Holds the keys of a gateway without a configuration: public, so they work on loopback only."""

DEVELOPMENT_KEY = "sk-lanewise-dev"
DEVELOPMENT_ADMIN_KEY = "sk-lanewise-admin-dev"
