"""Holds the version of Lanewise."""

VERSION = "0.1.0"
