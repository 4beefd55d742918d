"""A text generator that `train.py` made, behind the chat completions API: clients of the OpenAI API call it.

A reply goes on where the last message ends, as the texts of the training would, up to the end of a paragraph. Usage is
counted in the tokens of `model.py`. Options that the model does not have are refused.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

from model import Model, tokens_of
from wire import Events, Message, Receive, Refused, Send, answer, body_of

from longshore import Context, Volume, asgi

NAME = 'text-generator'
MODEL = 'models/text.json'
#: Tokens of a prompt and its reply together.
CONTEXT_LENGTH = 4096
REFUSED = ('tools', 'functions', 'logit_bias', 'suffix', 'best_of')

volume = Volume(name=NAME, mount_path='models')


class Reply:
    """A reply to a request: its pieces of text, then its usage and the reason of its end."""

    def __init__(self, model: Model, body: dict[str, Any], prompt: list[str]) -> None:
        for field in REFUSED:
            if body.get(field):
                raise Refused(400, 'unsupported_parameter', f'the model has no {field}', field)
        if body.get('n') not in (None, 1):
            raise Refused(400, 'unsupported_parameter', 'the model gives a single choice', 'n')
        stop = body.get('stop') or []
        self.stops: list[str] = [stop] if isinstance(stop, str) else stop
        if not all(isinstance(text, str) and text for text in self.stops):
            raise Refused(400, 'invalid_request', 'stop is a text, or a list of them', 'stop')
        self.most = int(number(body, 'max_completion_tokens', number(body, 'max_tokens', 256, 1), 1))
        temperature, top_p = number(body, 'temperature', 1, 0, 2), number(body, 'top_p', 1, 0, 1)
        if len(prompt) + self.most > CONTEXT_LENGTH:
            said = f'{len(prompt)} tokens of the prompt and {self.most} of the reply exceed {CONTEXT_LENGTH}'
            raise Refused(400, 'context_length_exceeded', said, 'messages')
        seed = body.get('seed')
        self.tokens = model.follow(prompt, temperature, top_p, seed if isinstance(seed, int) else None)
        self.prompt_tokens, self.completion_tokens = len(prompt), 0
        self.finish_reason = 'stop'

    def pieces(self) -> Iterator[str]:
        """Text that can no longer be the begin of a stop text."""
        held = ''
        keep = max((len(text) - 1 for text in self.stops), default=0)
        for token in self.tokens:
            self.completion_tokens += 1
            held += token
            ends = [at for at in map(held.find, self.stops) if at >= 0]
            if ends:
                yield held[: min(ends)]
                return
            if len(held) > keep:
                yield held[: len(held) - keep]
                held = held[len(held) - keep :]
            if self.completion_tokens == self.most:
                self.finish_reason = 'length'
                break
        yield held

    def usage(self) -> dict[str, int]:
        return {
            'prompt_tokens': self.prompt_tokens,
            'completion_tokens': self.completion_tokens,
            'total_tokens': self.prompt_tokens + self.completion_tokens,
        }


def number(body: dict[str, Any], field: str, absent: float, least: float, most: float = CONTEXT_LENGTH) -> float:
    value = body.get(field)
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise Refused(400, 'invalid_request', f'{field} is a number from {least} to {most}', field)
    return value


def text_of(message: object) -> str:
    content = message.get('content') if isinstance(message, dict) else None
    if isinstance(content, list):
        content = ''.join(part.get('text', '') for part in content if isinstance(part, dict))
    if not isinstance(content, str):
        raise Refused(400, 'invalid_request', 'a message has a role, and a content of text', 'messages')
    return content


def prompt_of(body: dict[str, Any], is_chat: bool) -> list[str]:
    if is_chat:
        messages = body.get('messages')
        if not isinstance(messages, list) or not messages:
            raise Refused(400, 'missing_required_parameter', 'messages are missing', 'messages')
        return [token for message in messages for token in tokens_of(text_of(message))]
    if not isinstance(body.get('prompt'), str):
        raise Refused(400, 'invalid_request', 'prompt is a text; lists and tokens are not taken', 'prompt')
    return tokens_of(body['prompt'])


class Kind:
    """The two kinds of requests differ in the names and shapes of the same things."""

    def __init__(self, is_chat: bool) -> None:
        self.is_chat = is_chat
        self.id = f'{"chatcmpl" if is_chat else "cmpl"}-{uuid.uuid4().hex}'
        self.created = int(time.time())

    def body(self, content: dict[str, Any], finish_reason: str | None, suffix: str = '') -> dict[str, Any]:
        return {
            'id': self.id,
            'object': f'chat.completion{suffix}' if self.is_chat else 'text_completion',
            'created': self.created,
            'model': NAME,
            'choices': [{'index': 0, **content, 'finish_reason': finish_reason, 'logprobs': None}],
        }

    def whole(self, reply: Reply) -> dict[str, Any]:
        text = ''.join(reply.pieces())
        message = {'role': 'assistant', 'content': text, 'refusal': None}
        content: dict[str, Any] = {'message': message} if self.is_chat else {'text': text}
        return {**self.body(content, reply.finish_reason), 'usage': reply.usage()}

    def chunk(self, text: str, finish_reason: str | None = None, **more: str) -> dict[str, Any]:
        delta = {**more, 'content': text} if text or more else {}
        content: dict[str, Any] = {'delta': delta} if self.is_chat else {'text': text}
        return self.body(content, finish_reason, '.chunk')


async def stream(kind: Kind, reply: Reply, with_usage: bool, events: Events) -> None:
    await events.begin()
    none: dict[str, Any] = {'usage': None} if with_usage else {}
    if kind.is_chat:
        await events.event({**kind.chunk('', role='assistant'), **none})
    for piece in reply.pieces():
        if events.is_gone:
            print(f'caller left after {reply.completion_tokens} tokens')
            return
        if piece:
            await events.event({**kind.chunk(piece), **none})
    await events.event({**kind.chunk('', reply.finish_reason), **none})
    if with_usage:
        await events.event({**kind.chunk(''), 'choices': [], 'usage': reply.usage()})
    await events.event('[DONE]')
    await events.finish()


def application(model: Model) -> Any:
    card = {'id': NAME, 'object': 'model', 'created': int(time.time()), 'owned_by': 'longshore'}

    async def respond(method: str, path: str, receive: Receive, send: Send) -> None:
        if (method, path) == ('GET', '/v1/models'):
            await answer(send, 200, {'object': 'list', 'data': [card]})
        elif method == 'POST' and path in ('/v1/chat/completions', '/v1/completions'):
            kind = Kind(path == '/v1/chat/completions')
            body = await body_of(receive)
            reply = Reply(model, body, prompt_of(body, kind.is_chat))
            if body.get('stream'):
                options = body.get('stream_options') or {}
                await stream(kind, reply, bool(options.get('include_usage')), Events(receive, send))
            else:
                await answer(send, 200, kind.whole(reply))
        else:
            raise Refused(404, 'unknown_url', f'{method} {path} is not here')

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            raise NotImplementedError(scope['type'])
        try:
            await respond(scope['method'], scope['path'][len(scope['root_path']) :], receive, send)
        except Refused as refused:
            await answer(send, refused.status, refused.body)

    return app


def load() -> Model:
    """The model of the volume; `train.py` makes it."""
    return Model.load(MODEL)


@asgi(name=NAME, cpu=1, memory='512mi', volumes=[volume], on_start=load, concurrent_requests=20)
def server(context: Context) -> Any:
    return application(context.on_start_value)
