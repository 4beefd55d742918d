/**
 * `npm ci` and `npm install` run this once the packages are there. It prepares the empty database of first starts,
 * which `npm start` then need not. Set-up installs packages without scripts, and prepares it beside its other steps.
 */
import { prepareDatabase } from './setup/database.mjs';

await prepareDatabase().catch((error) => process.stderr.write(`no prepared database: ${error.message}\n`));
