"""Handlers for the soak. Every handler answers with its input, so that a wrong answer shows."""

import os
import time


def echo(n=0):
    return {'n': n}


def slow(n=0, seconds=0.2):
    time.sleep(seconds)
    return {'n': n}


def release(n=0):
    return {'n': n, 'release': os.environ.get('SOAK_RELEASE', '')}


def fails(how='raises'):
    if how == 'exits':
        os._exit(3)
    if how == 'nan':
        return {'value': float('nan')}
    return {}['x']


def bad_start():
    raise RuntimeError('the model is not there')
