// The statement that ends an agent for good: its machine was deleted, signed by its installation.
import { createPublicKey } from 'node:crypto';

/**
 * @param statement - the text that the scheduler sent
 * @param installationKey - base64 SPKI, received over a connection whose CA the join token named
 * @returns false when it is not about this machine, or not signed by its installation
 */
export async function isRevocation(statement: string, machineId: string, installationKey: string): Promise<boolean> {
  try {
    const { jwtVerify } = await import('jose');
    const key = createPublicKey({ key: Buffer.from(installationKey, 'base64'), format: 'der', type: 'spki' });
    // A deletion is permanent: neither the time of its signature nor this machine's clock matters.
    const { payload } = await jwtVerify(statement, key, {
      algorithms: ['EdDSA'],
      issuer: 'longshore',
      subject: machineId,
      currentDate: new Date(0),
    });
    return payload['typ'] === 'revoked';
  } catch {
    return false;
  }
}
