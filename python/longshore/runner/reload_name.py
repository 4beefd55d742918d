"""The address at which a development server is asked to reload; apart, because the supervisor imports it, too."""

from __future__ import annotations


def name_of(container_id: str) -> str:
    """The abstract address of the container's first process."""
    return '\0longshore-reload-%s' % container_id
