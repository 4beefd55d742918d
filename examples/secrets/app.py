"""A secret: signs messages with a key that is in no file, no image and no log. Set it first; its value is read from stdin:

    openssl rand -hex 32 | longshore secret set SIGNING_KEY
"""

from __future__ import annotations

import hashlib
import hmac
import os

from longshore import endpoint


@endpoint(name='sign', cpu=0.25, memory=128, secrets=['SIGNING_KEY'])
def handler(message: str) -> dict[str, str]:
    key = os.environ['SIGNING_KEY'].encode()
    return {'signature': hmac.new(key, message.encode(), hashlib.sha256).hexdigest()}
