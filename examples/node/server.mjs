import { createServer } from 'node:http';

const server = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://pod');
  if (pathname === '/health') return response.end('ready');
  const greeting = `${process.env.GREETING}, ${searchParams.get('name') ?? 'world'}!`;
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ greeting, node: process.versions.node }));
});

server.listen(3000);
process.once('SIGTERM', () => server.close());
