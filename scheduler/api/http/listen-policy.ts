// Places where HTTP may listen: in clear on loopback alone, unless the operator allows more by name. Pure.

export interface ListenWish {
  readonly host: string;
  readonly port: number;
  readonly isSealed: boolean;
  /** `LONGSHORE_HTTP_PLAINTEXT` */
  readonly plaintext: 'loopback' | 'allow';
}

export interface ListenPlace {
  readonly host: string;
  readonly port: number;
  /** Whether the place differs from the requested one. */
  readonly isNarrowed: boolean;
}

const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|::1|::ffff:127\.\d+\.\d+\.\d+|localhost)$/i;

/** Whether a name or address is of this host alone. */
export const isLoopbackHost = (host: string): boolean => LOOPBACK.test(host);

export function listenPlace({ host, port, isSealed, plaintext }: ListenWish): ListenPlace {
  const mayListen = isSealed || plaintext === 'allow' || isLoopbackHost(host);
  return mayListen ? { host, port, isNarrowed: false } : { host: '127.0.0.1', port, isNarrowed: true };
}

/** Warning in the log and in `longshore status`. */
export const NARROWED =
  'HTTP in clear listens on loopback only: set LONGSHORE_HTTP_TLS_CERT and LONGSHORE_HTTP_TLS_KEY, or LONGSHORE_HTTP_PLAINTEXT=allow behind a proxy or on a trusted network';
