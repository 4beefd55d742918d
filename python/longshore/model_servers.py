"""What a `Pod` that serves a model says of it: `LLM`, and the autoscaler that counts its tokens."""

from __future__ import annotations

from typing import Any, Dict

from .checks import DefinitionError, text, whole
from .definitions import QueueDepthAutoscaler


class LLM:
    """
    Settings of a program that speaks the chat-completions dialect, for `Pod(serving=LLM(…))`.

    context_length: tokens of prompt and answer that a call may have; 0: 4096.
    cache_tokens: tokens that the cache of one container holds; 0: the context for each of the autoscaler's
    `tasks_per_container`.
    metrics_path: page of the engine's metrics on the pod's first port; empty: /metrics.
    model_id, engine, served_model_name, tokenizer, slo_tier: kept with the deployment.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(
        self,
        context_length: int = 0,
        cache_tokens: int = 0,
        metrics_path: str = '',
        model_id: str = '',
        engine: str = '',
        served_model_name: str = '',
        tokenizer: str = '',
        slo_tier: str = '',
    ) -> None:
        self.context_length = whole('context_length', context_length, 0)
        self.cache_tokens = whole('cache_tokens', cache_tokens, 0)
        self.metrics_path = text('metrics_path', metrics_path)
        if self.metrics_path and not self.metrics_path.startswith('/'):
            raise DefinitionError('metrics_path: must begin with a slash, not %r' % metrics_path)
        self.model_id = text('model_id', model_id)
        self.engine = text('engine', engine)
        self.served_model_name = text('served_model_name', served_model_name)
        self.tokenizer = text('tokenizer', tokenizer)
        self.slo_tier = text('slo_tier', slo_tier)

    def described(self) -> Dict[str, Any]:
        return {'serving_protocol': 'openai', 'llm': {name: value for name, value in vars(self).items() if value}}


class TokenPressureAutoscaler(QueueDepthAutoscaler):
    """
    For a `Pod` that serves a model: as `QueueDepthAutoscaler`, and a container for the tokens that calls reserve
    (docs/model-servers.md).
    """

    def described(self) -> Dict[str, Any]:
        return dict(super().described(), type='llm_token_pressure')
