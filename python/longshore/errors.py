"""Exceptions of images and sandboxes."""

from __future__ import annotations


class ImageBuildError(RuntimeError):
    """The image of a workload could not be built. Nothing here raises it: `longshore` builds images."""


class SandboxConnectionError(RuntimeError):
    """A sandbox or a pod was refused, did not start, or has ended."""


class SandboxProcessError(RuntimeError):
    """A program of a sandbox could not be started, read or ended, or did not end in time."""


class SandboxFileSystemError(RuntimeError):
    """A file of a sandbox could not be read or written."""
