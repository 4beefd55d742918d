// The one word that ends an agent for good: that its machine was deleted, signed by the installation it joined.
import { createPublicKey } from 'node:crypto';

/**
 * @param statement - as the scheduler sent it
 * @param installationKey - base64 SPKI, learnt over a connection whose CA the join token named
 * @returns false: not about this machine, or not signed by its installation
 */
export async function isRevocation(
  statement: string,
  machineId: string,
  installationKey: string | undefined,
): Promise<boolean> {
  if (installationKey === undefined || installationKey === '') return false;
  try {
    const { jwtVerify } = await import('jose');
    const key = createPublicKey({ key: Buffer.from(installationKey, 'base64'), format: 'der', type: 'spki' });
    // A deletion is for ever: when it was signed does not matter, nor what this machine's clock says.
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
