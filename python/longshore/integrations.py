"""Integrations of the published packages: none is served, and using one says so."""

from __future__ import annotations

from .published import getter

__all__ = ['MCPServer', 'MCPServerArgs', 'VLLM', 'VLLMArgs']

__getattr__ = getter(__name__, __all__)
