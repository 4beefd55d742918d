// The routes below /v1, matched on the path as it was sent: ids of models may hold a slash, encoded or not. Pure.
import { splitTarget } from '../streams/head.ts';

export type Matched =
  | { readonly kind: 'list' }
  | { readonly kind: 'model'; readonly id: string }
  | { readonly kind: 'chat' | 'completion' | 'embedding' }
  | { readonly kind: 'invoke'; readonly id: string }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'wrong_method'; readonly allowed: string };

const POSTED = {
  '/v1/chat/completions': 'chat',
  '/v1/completions': 'completion',
  '/v1/embeddings': 'embedding',
} as const satisfies Record<string, Matched['kind']>;
const MODELS = '/v1/models';
const INVOKE = '/invoke';

export function matchPath(method: string, target: string): Matched {
  const path = splitTarget(target).path.replace(/\/+$/, '');
  const posted = (POSTED as Readonly<Record<string, 'chat' | 'completion' | 'embedding'>>)[path];
  if (posted !== undefined) return method === 'POST' ? { kind: posted } : { kind: 'wrong_method', allowed: 'POST' };
  if (path === MODELS) return method === 'GET' ? { kind: 'list' } : { kind: 'wrong_method', allowed: 'GET' };
  if (!path.startsWith(`${MODELS}/`)) return { kind: 'unknown' };
  const rest = path.slice(MODELS.length + 1);
  const isInvoke = rest.endsWith(INVOKE);
  const id = decoded(isInvoke ? rest.slice(0, -INVOKE.length) : rest);
  if (id === undefined || id === '') return { kind: 'unknown' };
  if (isInvoke) return method === 'POST' ? { kind: 'invoke', id } : { kind: 'wrong_method', allowed: 'POST' };
  return method === 'GET' ? { kind: 'model', id } : { kind: 'wrong_method', allowed: 'GET' };
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
