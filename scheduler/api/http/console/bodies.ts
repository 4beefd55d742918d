// Bodies of the console's own routes: small, and read by a schema.
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import type { Static, TObject } from 'typebox';
import { AppError } from '#shared/errors.ts';
import { bodyParser } from '../bind.ts';
import { admit } from '../bodies.ts';
import { DecodeError, compileDecoder } from '../decode.ts';

const MOST_BYTES = 8 * 1024;

export interface SmallBody<S extends TObject> {
  /** Has the body read, once the sender may send one. */
  readonly admit: onRequestHookHandler;
  /** @throws AppError `bad_request`, `invalid_body` */
  readonly read: (request: FastifyRequest) => Static<S>;
}

export function bodyOf<S extends TObject>(schema: S): SmallBody<S> {
  const decode = compileDecoder(schema);
  const parse = bodyParser(schema);
  return {
    admit: (request, reply, done) => {
      admit(request, reply, { sender: 'public', payer: '', limitBytes: MOST_BYTES });
      done();
    },
    read: ({ body }) => {
      try {
        return decode(parse(body)) as Static<S>;
      } catch (error) {
        if (!(error instanceof DecodeError)) throw error;
        // The sent value is left out, and so is the cause: it may be a secret.
        throw new AppError('invalid_body', `${error.field} ${error.rule}`);
      }
    },
  };
}
