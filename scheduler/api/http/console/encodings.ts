// Encodings of answers that a browser takes.
import type { FastifyRequest } from 'fastify';

/** Whether `accept-encoding` names the encoding, with a weight above 0. In time that grows with the header's length. */
export const takesEncoding = ({ headers }: Pick<FastifyRequest, 'headers'>, name: string): boolean =>
  String(headers['accept-encoding'] ?? '')
    .split(',')
    .some((one) => {
      const [encoding = '', ...parameters] = one.split(';').map((part) => part.trim().toLowerCase());
      const weight = parameters.find((part) => part.startsWith('q='));
      return encoding === name && (weight === undefined || Number(weight.slice(2)) > 0);
    });
