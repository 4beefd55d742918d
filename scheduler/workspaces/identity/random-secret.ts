// Secrets of the web console: 256 random bits in 43 characters. Stores have their hashes alone.
import { createHash, randomBytes } from 'node:crypto';

const SECRET = /^[\w-]{43}$/;

export const aSecret = (): string => randomBytes(32).toString('base64url');
export const isSecret = (text: string): boolean => SECRET.test(text);
export const hashOf = (secret: string): Buffer => createHash('sha256').update(secret).digest();
