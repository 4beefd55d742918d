import { Metadata, credentials } from '@grpc/grpc-js';
import type { ChannelCredentials } from '@grpc/grpc-js';
import { HOST_HEADER, hostHeader } from '#shared/protocol/host-header.ts';
import type { ShownHost } from '#shared/protocol/host-header.ts';
import { MAX_MESSAGE_BYTES, SERVER_NAME, loadLink } from '#shared/protocol/link.ts';
import type { AgentLinkClient } from '#shared/protocol/generated/messages.ts';
import { LinkCredentials } from './link-credentials.ts';
import type { Proxy } from '../proxy.ts';
import { addressOf } from '../proxy.ts';

/**
 * Window of bytes in flight on a connection for bodies: 20 MB/s at a round trip of 50 ms. Node's own 64 KiB give 1.3
 * MB/s there.
 */
const BODY_WINDOW_BYTES = 1024 * 1024;

/** `bodies`: a connection for code archives only, since bytes buffered by the kernels would delay a ping. */
export type ChannelUse = 'session' | 'bodies';

/**
 * A channel that trusts one CA and nothing else. The caller closes it. @param proxy - proxy on the way to the address
 */
export function openChannel(
  address: string,
  caPem: string,
  proxy?: Proxy,
  use: ChannelUse = 'session',
): AgentLinkClient {
  const trust = new LinkCredentials(credentials.createSsl(Buffer.from(caPem)), address, proxy);
  const dialled = proxy === undefined ? address : addressOf(proxy);
  return channel(dialled, trust, { 'grpc.ssl_target_name_override': SERVER_NAME }, use);
}

/** A channel to the scheduler on this machine, without TLS. @param path - a socket where only this user can listen */
export function openLocalChannel(path: string, use: ChannelUse = 'session'): AgentLinkClient {
  return channel(`unix:${path}`, credentials.createInsecure(), {}, use);
}

function channel(
  address: string,
  trust: ChannelCredentials,
  options: Readonly<Record<string, string>>,
  use: ChannelUse,
): AgentLinkClient {
  const { AgentLink } = loadOnce().longshore.agent.v1;
  return new AgentLink(address, trust, {
    ...options,
    ...(use === 'bodies' ? { 'grpc-node.flow_control_window': BODY_WINDOW_BYTES } : {}),
    'grpc.default_authority': SERVER_NAME,
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES + 64 * 1024,
    // The scheduler has the same receive limit: with a smaller one here, a slightly larger message would end the
    // session.
    'grpc.max_send_message_length': 2 * MAX_MESSAGE_BYTES,
    // Each session has its own channel, without the back-off of an earlier one.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 1000,
    // `routeTo` chooses proxies, not gRPC.
    'grpc.enable_http_proxy': 0,
    'grpc.service_config_disable_resolution': 1,
  });
}

let loaded: ReturnType<typeof loadLink> | undefined;
const loadOnce = (): ReturnType<typeof loadLink> => (loaded ??= loadLink());

export function bearer(credential: string, sessionId?: string): Metadata {
  const metadata = new Metadata();
  metadata.set('authorization', `Bearer ${credential}`);
  if (sessionId !== undefined) metadata.set('session-id', sessionId);
  return metadata;
}

/** Shows the host in which this agent runs. @param metadata - of a call; changed */
export function shows(host: ShownHost, metadata: Metadata = new Metadata()): Metadata {
  metadata.set(HOST_HEADER, hostHeader(host));
  return metadata;
}
