import { expect, test } from 'vitest';
import { openerOf, sshLine } from '#cli/commands/console.ts';

test('a browser is opened where this machine has a screen, and not at the other end of SSH', () => {
  expect(openerOf('linux', { DISPLAY: ':0' })).toBe('xdg-open');
  expect(openerOf('linux', { WAYLAND_DISPLAY: 'wayland-0' })).toBe('xdg-open');
  expect(openerOf('darwin', {})).toBe('open');
  expect(openerOf('linux', {})).toBeUndefined();
  expect(openerOf('linux', { DISPLAY: '' })).toBeUndefined();
  expect(openerOf('linux', { DISPLAY: ':0', SSH_CONNECTION: '192.0.2.1 1 192.0.2.2 22' })).toBeUndefined();
  expect(openerOf('darwin', { SSH_CONNECTION: '192.0.2.1 1 192.0.2.2 22' })).toBeUndefined();
});

test('the line for another machine leads to a console on loopback alone', () => {
  expect(sshLine('http://127.0.0.1:1994/console/enter#x', 'gpu-01', 'ada')).toBe(
    'ssh -L 1994:127.0.0.1:1994 ada@gpu-01',
  );
  expect(sshLine('http://localhost:8080/console/enter#x', 'gpu-01', 'ada')).toBe(
    'ssh -L 8080:localhost:8080 ada@gpu-01',
  );
  expect(sshLine('https://gpu.example.org/console/enter#x', 'gpu-01', 'ada')).toBeUndefined();
});
