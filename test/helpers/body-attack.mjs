// Sends bodies that a scheduler should not take in, from a process of its own,
// until it is told to stop by a message. Loopback only, bounded in count.
import { connect } from 'node:net';

const [, , kind, port, path] = process.argv;
const MIB = 1024 * 1024;
const chunk = Buffer.alloc(16 * 1024, 0x20);
const attacks = {
  /** Connections that send 12 MiB each: 160 KiB at once, and 16 KiB at a time. */
  slow: { connections: 150, bytes: 12 * MIB, everyMs: 100, againMs: 1000, most: Infinity, head: '' },
  /** 200 bodies of 8 MiB with a bad token, 20 at a time, as fast as they are taken. */
  'bad-token': {
    connections: 20,
    bytes: 8 * MIB,
    everyMs: 0,
    againMs: 100,
    most: 200,
    head: 'authorization: Bearer bad\r\n',
  },
};
const { connections, bytes, everyMs, againMs, most, head } = attacks[kind];
let isOver = false;
let sent = 0;
let begun = 0;
const statuses = {};

function attack() {
  if (isOver || begun >= most) return;
  begun++;
  const socket = connect(Number(port), '127.0.0.1');
  let left = bytes;
  let timer;
  const send = () => {
    while (left > 0 && !socket.destroyed) {
      left -= chunk.length;
      sent += chunk.length;
      const goesOn = socket.write(chunk);
      if (everyMs > 0) return;
      if (!goesOn) return void socket.once('drain', send);
    }
  };
  socket.on('connect', () => {
    socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\n${head}content-length: ${bytes}\r\n\r\n`);
    if (everyMs > 0) {
      for (let count = 0; count < 10; count++) send();
      timer = setInterval(send, everyMs);
    } else send();
  });
  socket.once('data', (data) => {
    const status = data.toString('latin1', 9, 12);
    statuses[status] = (statuses[status] ?? 0) + 1;
    if (statuses[status] === 1) process.send({ kind: 'met', status });
    // A client that reads its refusal goes away; another one comes.
    socket.destroy();
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    clearInterval(timer);
    setTimeout(attack, againMs);
  });
}

for (let count = 0; count < connections; count++) attack();
process.send({ kind: 'begun' });
process.on('message', () => {
  isOver = true;
  process.send({ kind: 'over', sent, statuses }, () => process.exit(0));
});
process.on('disconnect', () => process.exit(0));
