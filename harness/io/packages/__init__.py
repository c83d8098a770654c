"""Packages of the package index: versions, downloads, hashes, unpacking."""
