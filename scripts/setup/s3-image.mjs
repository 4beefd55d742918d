/**
 * The image in which tests run an S3 server that checks signatures: OpenStack's
 * Swift with its S3 front end, because it needs no image registry.
 */
import { ensureDebianImage } from './debian-image.mjs';

/** @param {{ step<T>(title: string, work: () => Promise<T>): Promise<T> }} log */
export const ensureS3Image = (log) =>
  ensureDebianImage(log, {
    name: 'longshore-test-s3',
    revision: 1,
    packages: ['swift-proxy', 'swift-account', 'swift-container', 'swift-object', 'memcached'],
    changes: ['CMD ["sleep", "infinity"]'],
  });
