/**
 * Verifies the scheduler before anything secret is sent: one TLS connection reads the certificates of the address. The
 * last one of the chain must be the CA whose fingerprint the join token carries, and must have signed the server's.
 * gRPC credentials are then built from that CA, with a fixed server name. (Reading without verification is safe for
 * this purpose: nothing is sent on that connection.)
 */
import { X509Certificate, createHash, timingSafeEqual } from 'node:crypto';
import { connect } from 'node:tls';
import type { DetailedPeerCertificate } from 'node:tls';
import { splitAddress } from '#shared/address.ts';
import { AppError } from '#shared/errors.ts';
import { SERVER_NAME } from '#shared/protocol/link.ts';
import type { Proxy } from '../proxy.ts';
import { dialThrough } from './tunnel.ts';

const READ_DEADLINE_MS = 10_000;
const MAX_CHAIN = 8;

/**
 * @returns the CA's certificate as PEM
 * @throws AppError `scheduler_unreachable` (worth another try) or `wrong_scheduler` (not)
 */
export async function readTrustedCa(address: string, fingerprint: string, proxy?: Proxy): Promise<string> {
  const chain = await readChain(address, proxy);
  const by = proxy === undefined ? '' : `; the proxy ${proxy.shown} must pass TLS on as it is`;
  const [leaf] = chain;
  const ca = chain.at(-1);
  if (leaf === undefined || ca === undefined)
    throw new AppError('wrong_scheduler', `${address} shows no certificate; is it the scheduler's port for agents?`);
  const found = createHash('sha256').update(ca.raw).digest();
  const expected = Buffer.from(fingerprint, 'hex');
  if (expected.length !== found.length || !timingSafeEqual(found, expected)) {
    throw new AppError(
      'wrong_scheduler',
      `${address} is not the scheduler that made this join token (its CA has another fingerprint); check the address, or take a new token from that scheduler${by}`,
    );
  }
  const signed = leaf.checkIssued(ca) && leaf.verify(ca.publicKey) && leaf.checkHost(SERVER_NAME) !== undefined;
  if (!ca.ca || !signed)
    throw new AppError('wrong_scheduler', `${address} shows a certificate that the scheduler's CA has not signed`);
  return ca.toString();
}

/** Codes of OpenSSL for a first answer that is no TLS, as of an HTTP server. */
const NO_TLS: ReadonlySet<unknown> = new Set(['ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']);

const speaksNoTls = (cause: Error | undefined): boolean =>
  cause !== undefined && 'code' in cause && NO_TLS.has(cause.code);

async function readChain(address: string, proxy: Proxy | undefined): Promise<X509Certificate[]> {
  const { host, port } = splitAddress(address);
  const through = proxy === undefined ? undefined : await dialThrough(proxy, address);
  return await new Promise<X509Certificate[]>((resolve, reject) => {
    const socket = connect({
      ...(through === undefined ? { host, port } : { socket: through }),
      servername: SERVER_NAME,
      rejectUnauthorized: false,
      ALPNProtocols: ['h2'],
      timeout: READ_DEADLINE_MS,
    });
    const fail = (cause?: Error): void => {
      socket.destroy();
      through?.destroy();
      const options = cause === undefined ? {} : { cause };
      reject(
        speaksNoTls(cause)
          ? new AppError(
              'wrong_scheduler',
              `${address} speaks no TLS, so it is not the scheduler's port for agents (LONGSHORE_AGENT_ADDRESS there, port 1995 unless set)`,
              options,
            )
          : new AppError('scheduler_unreachable', `cannot reach the scheduler at ${address}`, options),
      );
    };
    socket.once('timeout', () => fail());
    socket.once('error', fail);
    socket.once('close', () => fail());
    socket.once('secureConnect', () => {
      const chain: X509Certificate[] = [];
      let next: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
      while (next?.raw !== undefined && chain.length < MAX_CHAIN) {
        chain.push(new X509Certificate(next.raw));
        // A self-signed certificate is its own issuer.
        next = next.issuerCertificate === next ? undefined : next.issuerCertificate;
        if (next?.raw !== undefined && chain.some((one) => one.raw.equals(next?.raw as Buffer))) next = undefined;
      }
      socket.destroy();
      resolve(chain);
    });
  });
}
