/** The image in which tests run systemd as process 1. */
import { ensureDebianImage } from './debian-image.mjs';

/** @param {{ step<T>(title: string, work: () => Promise<T>): Promise<T> }} log */
export const ensureSystemdImage = (log) =>
  ensureDebianImage(log, {
    name: 'longshore-test-systemd',
    revision: 1,
    // What a host needs that runs the agent as a service, and what the tests use there.
    packages: ['systemd', 'systemd-sysv', 'dbus', 'procps', 'curl', 'sudo', 'ca-certificates'],
    // No STOPSIGNAL: older engines refuse it here, so whoever starts a container of it names the signal.
    changes: ['ENV container=docker', 'CMD ["/sbin/init"]'],
  });
