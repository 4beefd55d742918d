// Metadata by which an agent shows which host it runs in, at Join, Control, RenewCredential and Prove. It is judged
// before the first message of a stream.
import type { HostIdentity } from '../domain/host-identity.ts';
import { identityFrom } from '../domain/host-identity.ts';
import { isRecord } from '../json.ts';

export const HOST_HEADER = 'host-identity';
const MOST_LETTERS = 4096;

export interface ShownHost {
  readonly hostname: string;
  readonly identity: HostIdentity;
}

/** JSON in printable ASCII. */
export const hostHeader = ({ hostname, identity }: ShownHost): string =>
  JSON.stringify({ hostname: hostname.replaceAll(/[^!-~]/g, '?').slice(0, 100), ...identity });

/** null: absent, or not to be read. */
export function hostFromHeader(text: string): ShownHost | null {
  if (text === '' || text.length > MOST_LETTERS) return null;
  try {
    const said: unknown = JSON.parse(text);
    if (!isRecord(said)) return null;
    const { hostname, instanceId, uuid, macs } = said;
    return {
      hostname: textOf(hostname)
        .replaceAll(/[^!-~]/g, '?')
        .slice(0, 100),
      identity: identityFrom({
        instanceId: textOf(instanceId),
        uuid: textOf(uuid),
        macs: Array.isArray(macs) ? macs.map(textOf) : [],
      }),
    };
  } catch {
    return null;
  }
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');
