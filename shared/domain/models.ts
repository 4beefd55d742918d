// Vocabulary of hosted models, without schemas: the command line names the choices before it loads anything else.

/** Id of a model: `name` or `org/name`. */
export const MODEL_ID = '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$';
export const MODEL_TYPES = ['chat', 'completion', 'embedding', 'rerank', 'image', 'custom'] as const;
export const MODEL_VISIBILITIES = ['workspace', 'public'] as const;
export const BACKEND_KINDS = ['deployment', 'external'] as const;
export const BACKEND_DEPLOYMENT_KINDS = ['asgi', 'pod'] as const;
export const MOST_MODEL_BACKENDS = 8;
export const MOST_MODELS = 100;
/** Largest price, in millionths of the currency. */
export const MOST_PRICE = 1_000_000_000_000;
