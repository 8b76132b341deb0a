"""The version of this package: read by the packaging, written into every artifact."""

VERSION = "0.1.0"
