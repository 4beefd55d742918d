// Writes docs/settings.md and the sample environment files in systemd/ from the
// daemons' settings schemas. A unit test fails when a file is out of date.
import { writeFileSync } from 'node:fs';
import { AgentSettings } from '../agent/config.ts';
import { MountsSettings } from '../agent/mounts/config.ts';
import { SchedulerSettings } from '../scheduler/config.ts';
import { sampleEnvironments, settingsPage } from './settings-page.mjs';

const schemas = { scheduler: SchedulerSettings, agent: AgentSettings, mounts: MountsSettings };
writeFileSync('docs/settings.md', settingsPage(schemas));
for (const [name, text] of Object.entries(sampleEnvironments(schemas))) writeFileSync(`systemd/${name}`, text);
