// The floor of `agent`: a bare Node that loads the libraries of an
// agent and the messages of its link, and does nothing with them.
import '@grpc/grpc-js';
import 'dockerode';
import { jwtVerify } from 'jose';
import 'pino';
import 'prom-client';
import 'typebox/value';
import 'yauzl';
import { loadLink } from '#shared/protocol/link.ts';

loadLink();
// The bundler leaves out an unreferenced import, so a global refers to it.
Object.assign(globalThis, { kept: jwtVerify });
setInterval(() => undefined, 60_000);
process.send?.({ kind: 'ready' });
