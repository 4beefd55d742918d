/** The image in which tests run systemd as process 1. */
import { ensureDebianImage } from './debian-image.mjs';

/** @param {{ step<T>(title: string, work: () => Promise<T>): Promise<T> }} log */
export const ensureSystemdImage = (log) =>
  ensureDebianImage(log, {
    name: 'longshore-test-systemd',
    revision: 2,
    // Packages for a host that runs the agent as a service, and for the tests on it.
    packages: ['systemd', 'systemd-sysv', 'dbus', 'procps', 'curl', 'sudo', 'ca-certificates', 's3fs'],
    // No STOPSIGNAL: older engines refuse it here, so the caller that starts a container names the signal.
    changes: ['ENV container=docker', 'CMD ["/sbin/init"]'],
  });
