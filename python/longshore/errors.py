"""Exceptions that app files name in `except` clauses. Calls of this module raise none of them by themselves."""

from __future__ import annotations


class ImageBuildError(RuntimeError):
    """The image of a workload could not be built."""


class SandboxConnectionError(RuntimeError):
    """A sandbox could not be reached."""


class SandboxProcessError(RuntimeError):
    """A process of a sandbox failed."""


class SandboxFileSystemError(RuntimeError):
    """A file of a sandbox could not be read or written."""
