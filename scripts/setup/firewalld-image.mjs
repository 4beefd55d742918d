/** The image in which tests run firewalld with a bus of its own, beside an engine that knows that bus. */
import { ensureDebianImage } from './debian-image.mjs';

/** @param {{ step<T>(title: string, work: () => Promise<T>): Promise<T> }} log */
export const ensureFirewalldImage = (log) =>
  ensureDebianImage(log, {
    name: 'longshore-test-firewalld',
    revision: 1,
    packages: ['firewalld', 'dbus', 'nftables', 'iptables', 'util-linux'],
    changes: [],
  });
