// Calls of deployments and models from the console's pages: below `/console/api/calls`, where the session is the
// credential. Only kinds that are answered with JSON or with events are here: the scheduler writes the heads of their
// answers, so that no header of an application reaches the console's origin. Source: decision 0663.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { registerInference } from '../inference/routes.ts';
import type { InferenceParts } from '../inference/routes.ts';
import { registerJsonCalls } from '../invoke/invoke.ts';
import type { InvokeParts } from '../invoke/invoke.ts';

export interface ConsoleCallParts {
  readonly invoke: InvokeParts;
  readonly inference: InferenceParts;
  /** The caller by its session. @throws AppError `unauthorized`, `rate_limited` */
  readonly callerOf: (request: FastifyRequest) => Promise<Caller>;
}

const CALLS = '/api/calls';

export function registerCalls(scope: FastifyInstance, { invoke, inference, callerOf }: ConsoleCallParts): void {
  void scope.register(
    (calls, _options, done) => {
      registerJsonCalls(calls, { ...invoke, callerOf });
      done();
    },
    { prefix: CALLS },
  );
  void scope.register(
    (models, _options, done) => {
      registerInference(models, { ...inference, callerOf, base: `${scope.prefix}${CALLS}` });
      done();
    },
    { prefix: CALLS },
  );
}
