// Scopes to which a token may be limited, beside its type.
export const TOKEN_SCOPES = ['invoke', 'read'] as const;
/** invoke: invokes deployments, and reads the tasks that it put · read: reads. */
export type TokenScope = (typeof TOKEN_SCOPES)[number];

export const isTokenScope = (text: string): text is TokenScope => (TOKEN_SCOPES as readonly string[]).includes(text);

/** Reads scopes with commas between them. A scope of a newer release stays in the list, and allows nothing here. */
export const readScopes = (text: string): readonly TokenScope[] =>
  text === '' ? [] : (text.split(',') as readonly TokenScope[]);
