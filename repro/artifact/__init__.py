"""The artifact: canonical JSON, the content-addressed layout, its reader and writer, the build cache."""
